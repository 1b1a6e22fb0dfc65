"""Take pictures of the dashboard's pages for docs/, over a database with an hour of a made-up incast.

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
from tests.support.dashboard.browser import chromium, dashboard, drawn, emulate, log_in
from tests.support.dashboard.incast_story import tell
from tests.support.database.rows import wait_written
from tests.support.waiting import wait_until
from webui.queries.experiments import experiments

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
    help="The lab's result folders; the newest is shown.",
)
@click.option("--only", help="Take only the picture of this name.")
@click.option("--whole", is_flag=True, help="Show pages in their full length.")
def main(folder: Path, results: Path, only: str | None, whole: bool) -> None:
    measured = experiments(results)
    if not measured:
        raise click.ClickException(
            f"no result folder of the lab in {results}; create one with: weir lab demo"
        )
    with (
        tempfile.TemporaryDirectory() as place,
        closing(FlowDb(f"sqlite:///{place}/weir.db", max_pending=1_000_000)) as db,
    ):
        url, story = f"sqlite:///{place}/weir.db", tell(db)
        flow, calm = story.flows[0].id, story.flows[1].id
        wait_written(db)
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
                    wait_until(lambda: drawn(browser), "every chart is drawn")
                    if whole:
                        height = browser.execute_script("return document.documentElement.scrollHeight")
                        emulate(browser, width, height, dark)
                        wait_until(lambda: drawn(browser), "every chart is drawn")
                    click.echo(
                        f"{name}: {save(browser.get_screenshot_as_png(), folder / f'{name}.png')} bytes"
                    )


def save(png: bytes, path: Path) -> int:
    """Save a picture with a palette of its most frequent colours, and return its size in bytes."""
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
