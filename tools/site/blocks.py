"""
The code that a page shows in several languages: adjacent fenced blocks of Python, Node, Go, and C, without a title.
hooks.py makes tabs of them, and tools/check-tabs runs them.
"""

import re

FENCE = re.compile(r"^```(python|js|go|c)\n(.*?)^```$\n?", re.M | re.S)


def adjacent_blocks(text):
    """Returns the groups of adjacent blocks in more than one language. A block is a match: its language, and its code."""
    groups = []
    for block in FENCE.finditer(text):
        if groups and not text[groups[-1][-1].end() : block.start()].strip():
            groups[-1].append(block)
        else:
            groups.append([block])
    return [group for group in groups if len({block[1] for block in group}) > 1]
