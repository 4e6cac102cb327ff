"""The seats of a worker: never more than there are, and nobody waits for one that is free."""

import threading

from workers.seats import Seats


def test_as_many_as_are_wanted_or_there_are() -> None:
    seats = Seats(4)
    assert [seats.take(3, within_s=30), seats.take(3, within_s=30)] == [3, 1]
    assert seats.num_taken == 4
    seats.give_back(2)
    assert seats.num_taken == 2
    assert seats.take(1, within_s=30) == 1
    assert seats.take(9, within_s=30) == 1
    assert seats.num_taken == 4


def test_who_finds_none_waits_for_the_first_that_is_given_back() -> None:
    seats = Seats(1)
    seats.take(1, within_s=30)
    taken: list[int] = []
    waiting = threading.Thread(target=lambda: taken.append(seats.take(2, within_s=30)))
    waiting.start()
    assert not taken
    seats.give_back(1)
    waiting.join(10)
    assert taken == [1]


def test_who_waits_in_vain_gets_none() -> None:
    seats = Seats(1)
    assert seats.take(1, within_s=0) == 1
    assert seats.take(1, within_s=0.01) == 0
    seats.give_back(1)
    assert seats.take(1, within_s=0) == 1


def test_many_at_once_never_have_more_than_there_are() -> None:
    seats, lock = Seats(5), threading.Lock()
    num_taken, most = 0, 0

    def work(wanted: int) -> None:
        nonlocal num_taken, most
        for _ in range(200):
            number = seats.take(wanted, within_s=30)
            with lock:
                num_taken += number
                most = max(most, num_taken)
            with lock:
                num_taken -= number
            seats.give_back(number)

    threads = [threading.Thread(target=work, args=(wanted,)) for wanted in (1, 1, 2, 3, 5, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (num_taken, most <= 5) == (0, True)
    assert seats.take(5, within_s=30) == 5
