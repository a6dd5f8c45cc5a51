"""`sasl.jaas.config` is read as Kafka's own Java clients read it: the same options of the same text, and the same refused."""

from __future__ import annotations

import base64
import random

from java_source import ask_java

from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access.jaas import parse_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
WRITTEN = (
    f'{MODULE} required username="u" password="p";',
    f'{MODULE} required\n\tusername="u"\r\n\tpassword="a;b=c";\n',
    f"{MODULE} OPTIONAL a=b;",
    f"{MODULE} required a='b\"c' d=\"e'f\";",
    MODULE + r' required a="\\\"\101\7\400\n\q";',
    f"{MODULE} required a=1;",
    f"{MODULE} required a=-b;",
    f"{MODULE} required a=b.c-d_e$f;",
    f"{MODULE} required a=b/c;",
    f"{MODULE} required a=b // c\n;",
    f"{MODULE} required a=/*x*/b;",
    f'{MODULE} required a="open\n;',
    f'{MODULE} required a="b"',
    f"{MODULE} required;;",
    f"{MODULE} required; {MODULE} required;",
    f"{MODULE} needed;",
    f"{MODULE};",
    MODULE,
    "",
    " ;",
    f'"{MODULE}" "required" "a" = "b";',
    f'{MODULE} required a="päß€😀\u00a0" ü=ö;',
)
PIECES = (
    *(
        "a",
        "b1",
        "1",
        "-",
        ".",
        "$",
        "_",
        "é",
        "€",
        "😀",
        " ",
        "\n",
        "\t",
        "=",
        ";",
        '"',
        "'",
        "\\",
    ),
    *("/", "//", "/*", "*/", "#", "{", "}", "required", MODULE, "\\n", "\\101", "\\7", "\u0085"),
)


def made(count: int) -> list[str]:
    """Texts at random that begin as an entry does, so that most get beyond the beginning."""
    dice = random.Random(20)
    texts = []
    for _ in range(count):
        tail = "".join(dice.choices(PIECES, k=dice.randint(0, 14)))
        option = f'{dice.choice("xyz")}="{"".join(dice.choices(PIECES, k=dice.randint(0, 6)))}"'
        texts.append(
            f"{MODULE} required {dice.choice(('', option))} {tail}{dice.choice(('', ';'))}"
        )
    return texts


def ours(text: str) -> str:
    try:
        entry = parse_jaas(text, "sasl.jaas.config")
    except ConfigError:
        return "refused"
    # Java orders strings by their UTF-16 units.
    names = sorted(entry.options, key=lambda name: name.encode("utf-16-be"))
    pairs = ((name, entry.options[name]) for name in names)
    parts = [entry.module, *(part for pair in pairs for part in pair)]
    return "\t".join("." + base64.b64encode(part.encode()).decode() for part in parts)


def test_java_reads_the_same() -> None:
    texts = [*WRITTEN, *made(20_000)]
    theirs = ask_java("JaasPeer", [base64.b64encode(text.encode()).decode() for text in texts])
    assert len(theirs) == len(texts)
    differing = [
        (text, java, ours(text))
        for text, java in zip(texts, theirs, strict=True)
        if java != ours(text)
    ]
    assert not differing, f"{len(differing)} differ, the first: {differing[:3]}"
    taken = sum(answer != "refused" for answer in theirs)
    assert taken > 100
