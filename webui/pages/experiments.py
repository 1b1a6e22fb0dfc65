"""Result folders of the lab: compared, and their reports opened in place."""

from __future__ import annotations

from flask import Blueprint, Response, abort, render_template, send_from_directory

from webui.parts import parts
from webui.results import experiment, experiments
from webui.security import REPORT_POLICY

blueprint = Blueprint("experiments", __name__)
MISSING = "there is no such result folder; [web] results names the folder that they are looked for in"


@blueprint.get("/experiments")
def index() -> str:
    folder = parts().settings.results
    return render_template("experiments.html", experiments=experiments(folder), folder=folder)


@blueprint.get("/experiments/<name>")
def show(name: str) -> str:
    found = experiment(parts().settings.results, name)
    if found is None:
        abort(404, MISSING)
    return render_template("experiment.html", experiment=found)


@blueprint.get("/experiments/<name>/report.html")
def report(name: str) -> Response:
    """The report as the lab made it: it may have its own styles, but no scripts, and nothing of ours."""
    found = experiment(parts().settings.results, name)
    if found is None or not found.has_report:
        abort(404, MISSING if found is None else "this experiment has no report; make it: weir lab report")
    answer = send_from_directory(parts().settings.results.resolve() / name, "report.html")
    answer.headers["Content-Security-Policy"] = REPORT_POLICY
    return answer
