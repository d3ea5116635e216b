"""Index a folder and answer searches over HTTP, as JSON.

python search_app.py photos --encoder onnx:default
curl 'http://127.0.0.1:8080/search?q=a+red+star&limit=3'
"""

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from vlmsearch import InvalidInputError, Pipeline, VlmsearchError


class SearchServer(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], pipeline: Pipeline) -> None:
        super().__init__(address, SearchHandler)
        self.pipeline = pipeline  # one for all threads


class SearchHandler(BaseHTTPRequestHandler):
    server: SearchServer

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qs(url.query))
        try:
            if url.path != "/search" or "q" not in query:
                self.answer(404, {"error": "ask for /search?q=TEXT"})
                return
            matches = self.server.pipeline.search(query["q"][0], limit=int(query.get("limit", ["10"])[0]))
            self.answer(200, [{"id": match.document.id, "score": round(match.score, 3)} for match in matches])
        except (InvalidInputError, ValueError) as exc:
            self.answer(400, {"error": str(exc)})
        except VlmsearchError as exc:
            self.answer(503, {"error": str(exc)})

    def answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Index a folder and answer searches over HTTP.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoder", default="onnx:demo")
    parser.add_argument("--store", default="sqlite:./search-app-index")
    parser.add_argument("--port", type=int, default=8080)
    given = parser.parse_args()
    with Pipeline.open(encoder=given.encoder, store=given.store) as pipeline:
        report = pipeline.index(given.folder)
        with SearchServer(("127.0.0.1", given.port), pipeline) as server:
            print(f"{report.added} added; http://127.0.0.1:{server.server_port}/search?q=", flush=True)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print("stopped")
