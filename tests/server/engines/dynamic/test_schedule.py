"""The groups and their order, on graphs small enough to work out by hand from DyNet's rules."""

import numpy as np

from server.engines.dynamic.schedule import Graph, by_agenda, by_depth, depths


def graph(nodes, single=(), costly=()):
    """`nodes`: (signature letter, operands by position) in topological order; letters in `single` can't be batched."""
    letters = sorted({letter for letter, _ in nodes})
    starts = np.cumsum([0, *(len(operands) for _, operands in nodes)])
    operands = np.array([operand for _, operands in nodes for operand in operands], np.int64)
    return Graph(
        signature=np.array([letters.index(letter) for letter, _ in nodes], np.int64),
        single=np.array([letter in single for letter in letters], bool),
        costly=np.array([letter in costly for letter in letters], bool),
        starts=starts,
        operands=operands,
        depth=depths(starts, operands),
    )


def groups(launches):
    return [sorted(launch.tolist()) for launch in launches.groups()]


# Two chains of lengths 2 and 3: nodes 0-1, and 2-3-4.
CHAINS = [("R", []), ("R", [0]), ("R", []), ("R", [2]), ("R", [3])]


def test_chains_of_mixed_lengths_run_in_step():
    for schedule in (by_depth, by_agenda):
        assert groups(schedule(graph(CHAINS))) == [[0, 2], [1, 3], [4]]


# A tagger: a recurrence R over two steps (0, 2) or three (4, 6, 8), and after each step its output O.
TAGGER = [("R", []), ("O", [0]), ("R", [0]), ("O", [2])]
TAGGER += [("R", []), ("O", [4]), ("R", [4]), ("O", [6]), ("R", [6]), ("O", [8])]


def test_by_depth_outputs_of_different_steps_run_apart():
    assert groups(by_depth(graph(TAGGER))) == [[0, 4], [1, 5], [2, 6], [3, 7], [8], [9]]


def test_the_agenda_runs_all_outputs_at_once():
    """The recurrence's average depth is smaller, so outputs wait until it's through: DyNet's own example."""
    assert groups(by_agenda(graph(TAGGER))) == [[0, 4], [2, 6], [8], [1, 3, 5, 7, 9]]


def test_trees_of_different_shape():
    # ((a b) c) and (a b): leaves L, then nodes N.
    trees = [("L", []), ("L", []), ("N", [0, 1]), ("L", []), ("N", [2, 3]), ("L", []), ("L", []), ("N", [5, 6])]
    for schedule in (by_depth, by_agenda):
        assert groups(schedule(graph(trees))) == [[0, 1, 3, 5, 6], [2, 7], [4]]


def test_unshared_operands_give_launches_of_their_own():
    # The same op with another weight is another signature.
    nodes = [("A", []), ("B", []), ("A", []), ("B", [])]
    assert groups(by_depth(graph(nodes))) == [[0, 2], [1, 3]]
    assert groups(by_agenda(graph(nodes))) == [[0, 2], [1, 3]]


def test_of_equal_depth_cheap_ones_run_before_products():
    nodes = [("M", []), ("E", [])]
    assert groups(by_agenda(graph(nodes, costly="M"))) == [[1], [0]]


def test_what_cannot_be_batched_runs_first_and_alone():
    nodes = [("A", []), ("S", []), ("S", []), ("A", [1])]
    assert groups(by_agenda(graph(nodes, single="S"))) == [[1], [2], [0, 3]]
    assert [0] in groups(by_depth(graph(nodes, single="S")))
    assert [1] in groups(by_depth(graph(nodes, single="S")))


def test_an_operand_read_twice_is_waited_for_once():
    nodes = [("A", []), ("B", [0, 0]), ("B", [0, 1])]
    assert groups(by_agenda(graph(nodes))) == [[0], [1], [2]]


def test_nothing_to_run():
    assert groups(by_depth(graph([]))) == []
    assert groups(by_agenda(graph([]))) == []


def test_every_node_runs_once_and_after_its_operands():
    generator = np.random.default_rng(0)
    for _ in range(30):
        count = int(generator.integers(1, 60))
        nodes = [
            ("ABC"[generator.integers(3)], generator.integers(0, k, generator.integers(0, 3)).tolist() if k else [])
            for k in range(count)
        ]
        for schedule in (by_depth, by_agenda):
            launches = groups(schedule(graph(nodes)))
            assert sorted(node for launch in launches for node in launch) == list(range(count))
            when = {node: time for time, launch in enumerate(launches) for node in launch}
            assert all(when[operand] < when[k] for k, (_, operands) in enumerate(nodes) for operand in operands)
            assert all(len({nodes[node][0] for node in launch}) == 1 for launch in launches)
