"""From matches to answers whose citations hold."""
