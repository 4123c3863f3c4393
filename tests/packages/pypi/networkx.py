import networkx as nx


def use():
    graph = nx.Graph([("a", "b", {"weight": 2}), ("b", "c", {"weight": 1}), ("a", "c", {"weight": 5})])
    dag = nx.DiGraph([(1, 2), (1, 3), (3, 2)])
    return [nx.shortest_path(graph, "a", "c", weight="weight"), list(nx.topological_sort(dag)), nx.is_directed_acyclic_graph(dag), sorted(nx.degree_centrality(graph).items())]
