"""The lab's result folders: comparisons of schemes, and the lab's own reports."""

from __future__ import annotations

from flask import Blueprint, Response, abort, render_template, send_from_directory

from webui.access.security import REPORT_POLICY
from webui.navigation import add_entry
from webui.queries.experiments import experiment, experiments
from webui.services import services

blueprint = Blueprint("experiments", __name__)
add_entry("experiments.index", "Experiments", 50)
MISSING = "there is no such result folder; [web] results names the folder that is searched"
NO_REPORT = "this experiment has no report; write it: weir lab report FOLDER"


@blueprint.get("/experiments")
def index() -> str:
    folder = services().settings.results
    return render_template("experiments.html", experiments=experiments(folder), folder=folder)


@blueprint.get("/experiments/<name>")
def show(name: str) -> str:
    found = experiment(services().settings.results, name)
    if found is None:
        abort(404, MISSING)
    return render_template("experiment.html", experiment=found)


@blueprint.get("/experiments/<name>/report.html")
def report(name: str) -> Response:
    """The report as the lab wrote it. It may use its own styles, but no scripts and none of our pages."""
    found = experiment(services().settings.results, name)
    if found is None or not found.has_report:
        abort(404, MISSING if found is None else NO_REPORT)
    answer = send_from_directory(services().settings.results.resolve() / name, "report.html")
    answer.headers["Content-Security-Policy"] = REPORT_POLICY
    answer.headers["Cache-Control"] = "no-store"  # Flask lets every cache keep the files that it sends
    del answer.headers["Expires"]
    return answer
