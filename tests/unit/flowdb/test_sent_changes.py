"""Changes that a writer has not written: kept for the next writer, in order and in bounds."""

from flowdb.writing.sent_changes import MOST_WRITERS, SentChanges


def test_unwritten_changes_come_back_in_order_and_written_ones_do_not():
    sent = SentChanges(10)
    assert sent.add([b"a", b"b"]) == 1
    assert sent.add([b"c"]) == 2
    assert sent.add([b"d"]) == 3
    sent.written(1)
    assert sent.take_back() == ([b"c", b"d"], 0)
    assert sent.take_back() == ([], 0)
    assert sent.add([b"c", b"d"]) == 4
    sent.written(4)
    assert sent.take_back() == ([], 0)


def test_changes_beyond_the_limit_are_counted_but_not_kept():
    sent = SentChanges(3)
    for change in (b"a", b"b", b"c", b"d", b"e"):
        sent.add([change])
    assert sent.take_back() == ([b"c", b"d", b"e"], 2)


def test_a_request_larger_than_the_limit_is_not_kept():
    sent = SentChanges(2)
    sent.add([b"a", b"b", b"c"])
    sent.add([b"d"])
    assert sent.take_back() == ([b"d"], 3)


def test_room_is_free_again_when_changes_are_written():
    sent = SentChanges(2)
    sent.add([b"a", b"b"])
    sent.written(1)
    sent.add([b"c", b"d"])
    assert sent.take_back() == ([b"c", b"d"], 0)


def test_changes_with_which_every_writer_ends_are_lost():
    sent = SentChanges(10)
    changes = [b"poison"]
    for _ in range(MOST_WRITERS - 1):
        sent.add(changes)
        assert sent.take_back() == (changes, 0)
    sent.add(changes)
    assert sent.take_back() == ([], 1)
    sent.add([b"a"])
    assert sent.take_back() == ([b"a"], 0)


def test_a_writer_that_has_written_something_was_not_ended_by_the_changes():
    sent = SentChanges(10)
    for _ in range(3 * MOST_WRITERS):
        sent.written(sent.add([b"a"]))
        sent.add([b"b"])
        assert sent.take_back() == ([b"b"], 0)


def test_a_writer_that_got_no_change_was_not_ended_by_the_changes():
    sent = SentChanges(10)
    for _ in range(MOST_WRITERS - 1):
        assert sent.take_back() == ([], 0)
    sent.add([b"a"])
    assert sent.take_back() == ([b"a"], 0)


def test_requests_without_changes_take_no_room_while_the_database_is_down():
    sent = SentChanges(2)
    sent.add([b"a"])
    for _ in range(1000):
        last = sent.add([])
    assert len(sent._requests) == 1
    sent.written(last)
    assert sent.take_back() == ([], 0)


def test_changes_that_were_not_kept_are_not_lost_once_they_are_written():
    sent = SentChanges(1)
    first, second = sent.add([b"a"]), sent.add([b"b"])
    sent.written(first)
    assert sent.take_back() == ([b"b"], 0)
    assert second > first
