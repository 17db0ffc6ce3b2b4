"""The crew: as many threads as it has tasks at a time, and no more than its size."""

import threading

from duecourse.engine.crew import Crew
from tests.support.wait import until


def threads(crew: Crew) -> int:
    """How many work for this crew: another test's may still be at their last task."""
    return sum(thread.is_alive() for thread in crew._threads)


def test_work_is_done_by_as_many_threads_as_there_are_places() -> None:
    crew, together = Crew(3), threading.Barrier(3, timeout=30)
    done: list[int] = []
    for _ in range(6):
        crew.do(lambda: done.append(together.wait()))
    crew.close()
    assert len(done) == 6
    assert threads(crew) == 0


def test_threads_are_hired_as_work_comes_and_kept() -> None:
    crew = Crew(8)
    assert threads(crew) == 0
    names: list[str] = []
    crew.do(lambda: names.append(threading.current_thread().name))
    until(lambda: names)
    assert threads(crew) == 1
    crew.close()


def test_a_crew_never_outgrows_its_size_whoever_gives_it_work() -> None:
    crew, gate = Crew(2), threading.Event()
    givers = [
        threading.Thread(target=lambda: [crew.do(lambda: gate.wait(30) and None) for _ in range(20)]) for _ in range(4)
    ]
    for giver in givers:
        giver.start()
    for giver in givers:
        giver.join()
    assert threads(crew) == 2
    gate.set()
    crew.close()


def test_a_closed_crew_can_be_given_work_again() -> None:
    crew, done = Crew(1), list[int]()
    for n in range(2):
        crew.do(lambda n=n: done.append(n))  # type: ignore[misc]
        crew.close()
    assert done == [0, 1]
