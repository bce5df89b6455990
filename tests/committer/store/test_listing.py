from __future__ import annotations

from support.memory_store import Behaviour, MemoryDriver, MemoryStore
from zero_rename.committer.store.listing import first_object, list_objects, list_uploads
from zero_rename.committer.store.requests import CreateUpload, Put


def driver() -> MemoryDriver:
    store = MemoryStore(behaviour=Behaviour(page=2))
    for name in ("a", "b", "c/d", "c/e", "f"):
        store.apply(Put(f"t/{name}", b""))
        store.apply(CreateUpload(f"t/{name}"))
    store.apply(Put("u/a", b""))
    return MemoryDriver(store)


def test_all_pages_are_asked_for() -> None:
    assert driver().run(list_objects("t/")).keys == ("t/a", "t/b", "t/c/d", "t/c/e", "t/f")
    found = driver().run(list_uploads("t/"))
    assert [upload.key for upload in found] == ["t/a", "t/b", "t/c/d", "t/c/e", "t/f"]


def test_direct_children() -> None:
    assert driver().run(list_objects("t/", direct=True)).keys == ("t/a", "t/b", "t/f")


def test_only_what_is_wanted() -> None:
    listing = driver().run(list_objects("t/", wanted=lambda item: "c/" in item.key))
    assert listing.keys == ("t/c/d", "t/c/e")


def test_nothing_there() -> None:
    assert driver().run(list_objects("v/")).keys == ()
    assert driver().run(list_uploads("v/")) == []
    assert driver().run(first_object("v/", lambda item: True)) is None


def test_the_pages_after_the_first_that_is_wanted_are_not_asked_for() -> None:
    asked = driver()
    found = asked.run(first_object("t/", lambda item: item.key == "t/b"))
    assert found is not None
    assert (found.key, len(asked.requests)) == ("t/b", 1)
    assert asked.run(first_object("t/", lambda item: item.key == "t/g")) is None
    assert len(asked.requests) == 4
