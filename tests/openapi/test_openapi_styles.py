"""How values of parameters are written: the table of the specification, and what has no form."""

import pytest

from mcpbus.openapi.styles import StyleError, header_text, path_text, query_pairs

STRING, ARRAY, OBJECT = "blue", ["blue", "black", "brown"], {"R": 100, "G": 200, "B": 150}

# OpenAPI 3.1.1, "Style Examples".
IN_PATHS = [
    ("matrix", False, ";color", ";color=blue", ";color=blue,black,brown", ";color=R,100,G,200,B,150"),
    (
        "matrix",
        True,
        ";color",
        ";color=blue",
        ";color=blue;color=black;color=brown",
        ";R=100;G=200;B=150",
    ),
    ("label", False, ".", ".blue", ".blue,black,brown", ".R,100,G,200,B,150"),
    ("label", True, ".", ".blue", ".blue.black.brown", ".R=100.G=200.B=150"),
    ("simple", False, None, "blue", "blue,black,brown", "R,100,G,200,B,150"),
    ("simple", True, None, "blue", "blue,black,brown", "R=100,G=200,B=150"),
]
IN_QUERIES = [
    ("form", False, "color=", "color=blue", "color=blue,black,brown", "color=R,100,G,200,B,150"),
    (
        "form",
        True,
        "color=",
        "color=blue",
        "color=blue&color=black&color=brown",
        "R=100&G=200&B=150",
    ),
    (
        "spaceDelimited",
        False,
        "color=",
        "color=blue",
        "color=blue%20black%20brown",
        "color=R%20100%20G%20200%20B%20150",
    ),
    (
        "pipeDelimited",
        False,
        "color=",
        "color=blue",
        "color=blue%7Cblack%7Cbrown",
        "color=R%7C100%7CG%7C200%7CB%7C150",
    ),
    ("deepObject", True, None, None, None, "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150"),
]


@pytest.mark.parametrize(("style", "explode", "texts"), [(row[0], row[1], row[2:]) for row in IN_PATHS])
def test_a_path_has_the_form_of_the_table(style, explode, texts):
    for value, text in zip(("", STRING, ARRAY, OBJECT), texts, strict=True):
        if text is None:
            with pytest.raises(StyleError, match="empty"):
                path_text("color", value, style, explode=explode)
        else:
            assert path_text("color", value, style, explode=explode) == text


@pytest.mark.parametrize(("style", "explode", "texts"), [(row[0], row[1], row[2:]) for row in IN_QUERIES])
def test_a_query_has_the_form_of_the_table(style, explode, texts):
    for value, text in zip(("", STRING, ARRAY, OBJECT), texts, strict=True):
        if text is None:
            with pytest.raises(StyleError, match="for objects"):
                query_pairs("color", value, style, explode=explode)
        else:
            pairs = query_pairs("color", value, style, explode=explode)
            assert "&".join(f"{name}={each}" for name, each in pairs) == text


@pytest.mark.parametrize(("explode", "members"), [(False, "R,100,G,200,B,150"), (True, "R=100,G=200,B=150")])
def test_a_header_has_the_form_of_the_table(explode, members):
    for value, text in ((STRING, "blue"), (ARRAY, "blue,black,brown"), (OBJECT, members)):
        assert header_text(value, explode=explode) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a/b?c=d&e#f", "a%2Fb%3Fc%3Dd%26e%23f"),
        ("é\u2028", "%C3%A9%E2%80%A8"),
        ("\ud800", "%3F"),
        (True, "true"),
        (None, ""),
        (1e21, "1e21"),
        (2.5, "2.5"),
        (["a,b", "c"], "a%2Cb,c"),
    ],
)
def test_all_but_unreserved_characters_are_escaped(value, text):
    assert query_pairs("q", value, "form", explode=False) == [("q", text)]


def test_reserved_characters_remain_where_the_document_allows_them():
    assert query_pairs("a[b]", "x/y:z é", "form", explode=True, reserved=True) == [
        ("a%5Bb%5D", "x/y:z%20%C3%A9")
    ]


@pytest.mark.parametrize("value", [[["a"]], [{"a": 1}], {"a": [1]}])
def test_a_list_within_a_list_has_no_form(value):
    with pytest.raises(StyleError, match="within another one"):
        path_text("p", value, "simple", explode=False)


def test_a_list_in_a_deep_object_is_repeated():
    assert query_pairs("f", {"a": [1, 2]}, "deepObject", explode=True) == [
        ("f%5Ba%5D", "1"),
        ("f%5Ba%5D", "2"),
    ]
