"""What is typed into the search box, as terms."""

import pytest

from app.search import Term, tag_term, terms_of


@pytest.mark.parametrize(
    ("typed", "terms"),
    [
        ("paris france", [Term(("paris",)), Term(("france",))]),
        ('"capital of  France"', [Term(("capital", "of", "France"))]),
        ("par*", [Term(("par",), is_prefix=True)]),
        ('"capital of fr*" x', [Term(("capital", "of", "fr"), is_prefix=True), Term(("x",))]),
        ('"capital of fr"*', [Term(("capital", "of", "fr"), is_prefix=True)]),
        ('"never closed', [Term(("never", "closed"))]),
        ("don't", [Term(("don", "t"))]),
        ("a/b_c", [Term(("a", "b", "c"))]),
        ("Übung e\u0301", [Term(("Übung",)), Term(("e\u0301",))]),
        ("東京", [Term(("東京",))]),
        ('% * " "', []),
        ("", []),
        ("\0x\0y", [Term(("x", "y"))]),
    ],
)
def test_terms(typed: str, terms: list[Term]) -> None:
    assert terms_of(typed) == terms


def test_tags_that_differ_are_different_words() -> None:
    tags = ["a b", "a_b", "A b", "ab", "é", "e\u0301", "东"]
    words = {tag_term(tag).words for tag in tags}
    assert len(words) == len(tags)
    assert all(len(term) == 1 and term[0].isalnum() and term[0].islower() for term in words)
