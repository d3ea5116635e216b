"""``vlmsearch bench``."""

from __future__ import annotations

import click

from vlmsearch.cli.bench.encode import bench_encode
from vlmsearch.cli.bench.gpu import bench_gpu
from vlmsearch.cli.bench.llm import bench_llm
from vlmsearch.cli.bench.search import bench_search
from vlmsearch.cli.bench.serve import bench_serve
from vlmsearch.cli.bench.triton import bench_triton
from vlmsearch.cli.common import Group


@click.group(cls=Group)
def bench() -> None:
    """Measure models, an index, a service, a GPU, or a Triton or LLM server."""


for command in (bench_encode, bench_triton, bench_llm, bench_gpu, bench_search, bench_serve):
    bench.add_command(command)
