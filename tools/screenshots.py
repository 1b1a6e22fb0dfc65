"""Pictures of the dashboard's pages, for docs/: an hour of an incast, told into a database of its own.

python -m tools.screenshots [--folder docs/dashboard] [--only overview]
"""

from __future__ import annotations

import io
import tempfile
from contextlib import closing
from pathlib import Path

import click
from PIL import Image

from flowdb.db import FlowDb
from tests.story import tell
from tests.web.browser import chromium, dashboard, drawn, emulate, log_in, until
from webui.results import experiments

COLOURS = 255
MOST_BYTES = 150_000
WIDE, NARROW, HUGE = 1280, 375, 2560


@click.command(help=__doc__.splitlines()[0] if __doc__ else None)
@click.option("--folder", type=click.Path(path_type=Path), default=Path("docs/dashboard"), show_default=True)
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Result folders of the lab; the newest is shown.",
)
@click.option("--only", help="The picture of this name alone.")
@click.option("--whole", is_flag=True, help="Pages in their full length.")
def main(folder: Path, results: Path, only: str | None, whole: bool) -> None:
    measured = experiments(results)
    if not measured:
        raise click.ClickException(f"no result folder of the lab in {results}; make one: weir lab demo")
    with (
        tempfile.TemporaryDirectory() as place,
        closing(FlowDb(f"sqlite:///{place}/weir.db", max_pending=1_000_000)) as db,
    ):
        url, story = f"sqlite:///{place}/weir.db", tell(db)
        flow, calm = story.flows[0].id, story.flows[1].id
        until(lambda: not db.counters.pending, 60)
        with dashboard(url, Path(place), "--results", str(results)) as root, chromium(WIDE) as browser:
            log_in(browser, root)
            pages = {
                "overview": ("/", WIDE, False),
                "overview-dark": ("/", WIDE, True),
                "overview-phone": ("/", NARROW, False),
                "overview-huge": ("/", HUGE, False),
                "topology": ("/topology", WIDE, False),
                "ports": ("/ports", WIDE, False),
                "port": ("/ports/0000000000000005/1", WIDE, False),
                "flows": ("/flows?q=10.0.5.1", WIDE, False),
                "flow": (f"/flows/{flow}", WIDE, False),
                "flow-phone": (f"/flows/{flow}", NARROW, True),
                "flow-queue": (f"/flows/{calm}", WIDE, True),
                "experiments": ("/experiments", WIDE, False),
                "experiment": (f"/experiments/{measured[0].name}", WIDE, False),
                "actions": ("/commands", WIDE, False),
                "settings": ("/settings", WIDE, False),
            }
            folder.mkdir(parents=True, exist_ok=True)
            for name, (address, width, dark) in pages.items():
                if only in (None, name):
                    emulate(browser, width, 812 if width == NARROW else 1000, dark)
                    browser.get(root + address)
                    until(lambda: drawn(browser))
                    if whole:
                        height = browser.execute_script("return document.documentElement.scrollHeight")
                        emulate(browser, width, height, dark)
                        until(lambda: drawn(browser))
                    click.echo(
                        f"{name}: {save(browser.get_screenshot_as_png(), folder / f'{name}.png')} bytes"
                    )


def save(png: bytes, path: Path) -> int:
    """A picture in its most frequent colours, of which these pages have few; how large it is."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    counted = sorted(image.getcolors(image.width * image.height) or [], reverse=True)
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in counted[:COLOURS] for part in colour])
    image = image.quantize(palette=palette, dither=Image.Dither.NONE)
    image.save(path, optimize=True)
    if (size := path.stat().st_size) > MOST_BYTES:
        raise click.ClickException(f"{path} has {size} bytes, more than {MOST_BYTES}")
    return size


if __name__ == "__main__":
    main()
