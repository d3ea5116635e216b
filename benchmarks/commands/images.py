"""``vlmsearch bench images``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vlmsearch.cli.bench.data import Sizes, read_images
from vlmsearch.cli.common import command, json_option, option, print_json, print_table

if TYPE_CHECKING:
    from benchmarks.images import DecodeTiming, Overlap


@command("images")
@option("--encoder", default="onnx:demo", show_default=True, metavar="URL",
        help="What makes the vectors: a model that runs here.")  # fmt: skip
@option("--images", type=click.Path(path_type=Path), metavar="DIR",
        help="A folder of JPEG files.  [default: drawn scenes]")  # fmt: skip
@option("--sizes", type=Sizes(), metavar="LIST",
        help="Bring the images to these sizes, with grain, as a camera would save them.  [default: "
        "640x480,1024x768,4032x3024; the images of --images as they are]")  # fmt: skip
@option("--progressive", is_flag=True, help="Save what --sizes makes as progressive JPEG files.")
@option("--count", default=128, show_default=True, type=click.IntRange(1), help="How many images are encoded.")
@option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="How often everyone runs.")
@json_option
def bench_images(
    encoder: str, images: Path | None, sizes: list[tuple[int, int]] | None, progressive: bool, count: int, rounds: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Time JPEG files on their way to vectors: decoding alone on one core, and together with the model on all.

    "JPEG to RGB" decodes, at a fraction of the size where the model cannot tell; "JPEG to pixels" resizes and crops as
    well. Of decoding and encoding at once, "of slower" compares with the slower of the two, to which a model on a GPU
    can come near; a model on the CPU shares the cores with the decoders, and "of shared" compares with cores that are
    never idle.
    """
    from benchmarks.images import Pictures, camera_pictures, preprocess_of, time_decoding, time_overlap
    from vlmsearch.errors import ConfigError
    from vlmsearch.export.inputs import machine
    from vlmsearch.export.progress import steps
    from vlmsearch.registry import open_encoder

    if progressive and images and not sizes:
        raise ConfigError("--progressive is for what --sizes makes: give --sizes, too")
    decoding: list[DecodeTiming] = []
    overlaps: list[Overlap] = []
    with ExitStack() as stack:
        opened = stack.enter_context(open_encoder(encoder))
        preprocess = preprocess_of(opened)
        files = read_images(images, count)
        report = stack.enter_context(steps("bench images"))
        usual: list[tuple[int, int] | None] = [None] if images else [(640, 480), (1024, 768), (4032, 3024)]
        try:
            for size in sizes or usual:
                if size:
                    report(f"making {size[0]}x{size[1]}", 0, 1)
                pictures = (
                    camera_pictures(files, size, progressive=progressive)
                    if size
                    else Pictures("as they are", tuple(files))
                )
                decoding += time_decoding(pictures, preprocess, rounds=rounds, report=report)
                overlaps.append(time_overlap(pictures, opened, count=count, rounds=rounds, report=report))
        except KeyboardInterrupt:
            if not decoding:
                raise
            click.echo("Interrupted: these are the figures that were finished.", err=True)
    if as_json:
        print_json(_as_json(encoder, machine(), rounds, decoding, overlaps))
    else:
        _print(f"{encoder}, {machine()}, {rounds} rounds", decoding, overlaps)


def _as_json(
    encoder: str, machine: str, rounds: int, decoding: list[DecodeTiming], overlaps: list[Overlap]
) -> dict[str, object]:
    return {
        "encoder": encoder,
        "machine": machine,
        "rounds": rounds,
        "decoding": [
            {
                "images": timing.pictures.name,
                "kilobytes": round(timing.pictures.kilobytes, 1),
                "contender": timing.contender,
                "images_per_second_and_core": round(timing.rate, 1),
            }
            for timing in decoding
        ],
        "overlap": [
            {
                "images": overlap.pictures.name,
                "decoded_per_second": round(overlap.decoded, 1),
                "encoded_per_second": round(overlap.encoded, 1),
                "both_per_second": round(overlap.both, 1),
                "of_slower": round(overlap.of_slower, 3),
                "of_shared": round(overlap.of_shared, 3),
            }
            for overlap in overlaps
        ],
    }


def _print(title: str, decoding: list[DecodeTiming], overlaps: list[Overlap]) -> None:
    rows = [(t.pictures.name, f"{t.pictures.kilobytes:.0f}", t.contender, f"{t.rate:.0f}") for t in decoding]
    print_table(("images", "kB", "who", "images/s a core"), rows, left=("images", "who"), title=title)
    if not overlaps:
        return
    names = ("images", "decoded/s", "encoded/s", "both/s", "of slower", "of shared")
    cells = [
        (o.pictures.name, *(f"{rate:.0f}" for rate in (o.decoded, o.encoded, o.both)),
         f"{o.of_slower:.2f}", f"{o.of_shared:.2f}")
        for o in overlaps
    ]  # fmt: skip
    print_table(names, cells, left=("images",), title="on all cores")
