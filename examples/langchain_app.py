"""Answer questions about a folder of pictures and notes with LangChain.

python langchain_app.py photos "Where is the red star?"

The prompt has the texts and pictures that were found. Here a model that only repeats what it was given answers; put a
chat model of LangChain that sees in its place, such as ``ChatOpenAI(model=...)`` of langchain-openai.
"""

import argparse
from pathlib import Path

from langchain_core.messages import HumanMessage
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough

from vlmsearch import Pipeline
from vlmsearch.integrations.langchain import VlmsearchRetriever, image_block


def make_prompt(given: dict) -> list[HumanMessage]:
    """Return one message: the question, then each source with its number, its text and its picture."""
    parts: list = [{"type": "text", "text": f"Answer from these sources, and cite them as [1]. {given['question']}"}]
    for number, source in enumerate(given["sources"], 1):
        parts.append({"type": "text", "text": f"[{number}] {source.page_content or Path(source.id).name}"})
        if "image" in source.metadata:
            parts.append(image_block(source, edge=512))
    return [HumanMessage(parts)]


def repeat(messages: list[HumanMessage]) -> str:
    """Return the sources in place of an answer."""
    [message] = messages
    texts = [part["text"] for part in message.content if part["type"] == "text"][1:]
    pictures = sum(part["type"] == "image" for part in message.content)
    return f"{'; '.join(texts) or 'nothing'} ({pictures} pictures)"


def make_chain(pipeline: Pipeline, model: Runnable, *, k: int) -> Runnable:
    sources = VlmsearchRetriever(pipeline=pipeline, k=k)
    return {"sources": sources, "question": RunnablePassthrough()} | RunnableLambda(make_prompt) | model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Answer a question about a folder of pictures and notes.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("question")
    parser.add_argument("--encoder", default="onnx:demo")
    parser.add_argument("--store", default="sqlite:./langchain-app-index")
    parser.add_argument("-k", type=int, default=3)
    given = parser.parse_args()
    with Pipeline.open(encoder=given.encoder, store=given.store, generator=None) as pipeline:
        pipeline.index(given.folder)
        print(make_chain(pipeline, RunnableLambda(repeat), k=given.k).invoke(given.question))
