"""The page that a recognizer gets on a hub: what it knows, and what to expect of it."""

from __future__ import annotations

from glocal import __version__
from glocal.common.words import counted
from glocal.recognizer.recognizer import Recognizer

FILE, CARD = "recognizer.glocal", "README.md"
HEAD = """---
library_name: glocal
pipeline_tag: image-classification
tags:
- few-shot
- open-set-recognition
---
"""


def model_card(recognizer: Recognizer, repository: str) -> str:
    contents, threshold = recognizer.contents, recognizer.threshold
    encoder, support = contents.model.encoder, contents.support
    linked = any(graph.linked for graph in encoder.graphs())
    outside = " Its weights are not in this file; bring the .encoder file with this hash." if linked else ""
    hashes = ", ".join(each.graph.sha256[:16] for each in encoder.members) or "vectors of another program"
    classes = "\n".join(
        f"| {_cell(name)} | {shots} |" for name, shots in zip(support.names, support.shots, strict=True)
    )
    return f"""{HEAD}
# {counted(len(support.names), "class")}, and "unknown" for everything else

A recognizer of glocal {__version__}: `{contents.model.name}`.

```python
from glocal import Recognizer

recognizer = Recognizer.load("hf:{repository}")
recognizer.predict("new.jpg")
```

| class | photos |
|---|---|
{classes}

* Encoder: {_cell(encoder.name)} ({hashes}), licence of its weights: {_cell(encoder.licence) or "not stated"}.{outside}
* Target rate of false unknowns: {100 * threshold.target_rate:g} %.
* Identity: {contents.identity}

## What to expect

{chr(10).join(f"* {_cell(line)}" for line in recognizer.outlook().lines())}

The file holds small copies of the photos that it was enrolled with.
"""


def _cell(words: str) -> str:
    """In a table or list, whatever it holds."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in words)
