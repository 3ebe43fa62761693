"""How figures look, on the page and on paper: colours, axes and layout, as plotly's own data. It knows no numbers."""

from typing import Any

Figure = dict[str, Any]

INK, FAINT, GRID, ACCENT, GOAL = "#1c2733", "#52606d", "#e4e8ee", "#1f5fbf", "#b42318"
# Lines that stand side by side, told apart without red and green too.
SERIES_COLOURS = ("#1f5fbf", "#c8446a", "#2f8f6b", "#b07a1e", "#8a5bb5", "#3a9fb5", "#7a5c45", "#d2691e")
# Computing in blues, waiting in warm colours, so that what keeps a run from scaling stands out.
PHASE_COLOURS = {
    "input": "#e8a33d",
    "forward": "#9cc5ec",
    "backward": "#4a8fd0",
    "update": "#1f4e8c",
    "sync": "#c8446a",
    "evaluate": "#8b96a3",
    "checkpoint": "#b9a27c",
}
# The same colours for what a step's time goes to by cause.
CAUSE_COLOURS = {
    "computation": "#4a8fd0",
    "framework": "#1f4e8c",
    "cores": "#8b96a3",
    "input": "#e8a33d",
    "latency": "#e39ab0",
    "bandwidth": "#c8446a",
    "imbalance": "#8a5bb5",
}


def lay_out(x_axis: dict[str, Any], y_axis: dict[str, Any]) -> dict[str, Any]:
    """A figure's layout with two axes."""
    return {
        "template": "none",
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 58, "r": 14, "t": 12, "b": 46},
        "height": 270,
        "hovermode": "x unified",
        "modebar": {"bgcolor": "rgba(255,255,255,0.85)", "color": "#7b8794", "activecolor": ACCENT},
        "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": "#c3cad3", "font": {"color": INK}},
        "showlegend": False,
        "xaxis": make_axis(x_axis),
        "yaxis": make_axis(y_axis),
    }


def make_axis(settings: dict[str, Any]) -> dict[str, Any]:
    """An axis with a look of its own."""
    title = {**settings.get("title", {}), "font": {"size": 13, "color": FAINT}}
    look = {"gridcolor": GRID, "zeroline": False, "linecolor": "#c3cad3", "tickfont": {"size": 12, "color": FAINT}}
    return {**look, **settings, "title": title}
