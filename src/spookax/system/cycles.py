"""Which parts of a mechanism lie on closed loops."""

from collections.abc import Collection, Sequence


def on_cycles(groups: Sequence[Collection[int]]) -> list[bool]:
    """Whether some two members of a group are connected without it, too, through groups with common members.

    In the graph whose vertices are groups and members and whose edges are memberships, such a group is one with an
    edge that is no bridge. In time linear in the memberships.

    **Source:** Tarjan (1972): the edge that leads to a vertex of a depth-first tree is a bridge where no edge of the
    vertex and what is below it leads to a vertex found earlier.
    """
    vertex_of: dict[int, int] = {}
    beside: list[list[int]] = [[] for _ in groups]
    for group, members in enumerate(groups):
        for member in set(members):
            vertex = vertex_of.setdefault(member, len(beside))
            if vertex == len(beside):
                beside.append([])
            beside[group].append(vertex)
            beside[vertex].append(group)

    above, number = [-1] * len(beside), [-1] * len(beside)  # vertex before it in the tree; place in the order
    order: list[int] = []
    for root in range(len(groups)):
        waiting = [(root, -1)]
        while waiting:
            vertex, before = waiting.pop()
            if number[vertex] < 0:
                above[vertex], number[vertex] = before, len(order)
                order.append(vertex)
                waiting += [(other, vertex) for other in beside[vertex] if number[other] < 0]

    earliest, found = number.copy(), [False] * len(beside)
    for vertex in reversed(order):
        earliest[vertex] = min([number[vertex], *(earliest[v] for v in beside[vertex] if v != above[vertex])])
        if earliest[vertex] < number[vertex]:  # no bridge
            found[vertex] = found[above[vertex]] = True
    return found[: len(groups)]
