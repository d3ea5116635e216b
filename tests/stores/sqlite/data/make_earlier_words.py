"""Write earlier-words.gz: an index whose words were made before codes were terms, on vlmsearch of commit 95eb7f8d.

In a checkout of that commit: ``PYTHONPATH=.:mocks python make_earlier_words.py index && gzip -9n < index``.
"""

import sys

from vlmsearch import Document, Pipeline

TEXTS = {
    "languages": "The service is written in C++ and in C#, with a page in Python.",
    "release": "Release 2.10.3 mends the reader of tables.",
    "valve": "The valve AB-4711 leaks at number 7731.22.05.",
    "dogs": "Two dogs are running in the snow.",
    "harbour": "Boats lie in the harbour at night.",
}

if __name__ == "__main__":
    with Pipeline.open(encoder="onnx:demo", store=f"sqlite:{sys.argv[1]}") as pipeline:
        pipeline.add([Document(name, text=text, metadata={"n": n}) for n, (name, text) in enumerate(TEXTS.items())])
