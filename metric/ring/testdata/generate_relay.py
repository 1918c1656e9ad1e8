"""Writes the expected placements of carbon-c-relay's rings, by a plain implementation in Python:

    python3 generate_relay.py > placements_relay.json
"""
import hashlib
import json

MASK = (1 << 64) - 1


def name(i):
    x = (i * 2654435761 + 12345) & 0xFFFFFFFF
    tags = ";dc=dc%d;host=web%02d" % (x % 3, x % 17) if i % 10 == 7 else ""
    return "servers.host%d.%s.n%d%s" % (i % 997, ("cpu", "memory", "disk", "network")[x % 4], x, tags)


def fnv(text, start, prime, size):
    h = start
    for c in text.encode():
        h = (h ^ c) * prime % (1 << size)
    return h


def fnv_position(text):
    h = fnv(text, 2166136261, 16777619, 32)
    return (h >> 16) ^ (h & 0xFFFF)


def md5_position(text):
    return int(hashlib.md5(text.encode()).hexdigest()[:4], 16)


def ring(nodes, method):
    position = md5_position if method == "carbon_ch-c-relay" else fnv_position
    owner = {}
    if method == "carbon_ch-c-relay":
        order = sorted(nodes, key=lambda n: (n[0], n[2] is None, n[2] or ""))
    else:
        order = sorted(nodes, key=lambda n: (n[0], n[1]))
    for node in order:
        for i in range(100):
            if method == "carbon_ch-c-relay":
                key = "%r:%d" % ((node[0], node[2]), i)
            else:
                key = "%d-%s" % (i, node[2] if node[2] is not None else "%s:%d" % node[:2])
            owner.setdefault(position(key), node)
    places = sorted(owner)

    def place(metric, count):
        p, found = position(metric), []
        for q in [q for q in places if q >= p] + [q for q in places if q < p]:
            if owner[q] not in found:
                found.append(owner[q])
                if len(found) == count:
                    break
        return found
    return place


def bucket(key, n):
    b, j = -1, 0
    while j < n:
        b = j
        key = (key * 2862933555777941757 + 1) & MASK
        j = ((b + 1) << 31) // ((key >> 33) + 1)
    return b


def jump(nodes):
    numbers = all(n[2] is None or n[2].isdigit() for n in nodes)
    servers = sorted((n for n in nodes if n[2] is not None), key=lambda n: int(n[2]) if numbers else n[2])
    servers += [n for n in nodes if n[2] is None]

    def place(metric, count):
        key, left, found = fnv(metric, 14695981039346656037, 1099511628211, 64), list(servers), []
        while left and len(found) < count:
            b = bucket(key, len(left))
            found.append(left[b])
            left[b] = left[-1]
            left.pop()
            key ^= key >> 12
            key = (key ^ key << 25) & MASK
            key ^= key >> 27
            key = key * 2685821657736338717 & MASK
        return found
    return place


def case(title, destinations, replication, method):
    nodes = []
    for d in destinations:
        host, port, *instance = d.split(":")
        nodes.append((host, int(port), instance[0] if instance else None))
    place = jump(nodes) if method == "jump_fnv1a_ch" else ring(nodes, method)
    lines = [" ".join(str(nodes.index(n)) for n in place(name(i), replication)) for i in range(20000)]
    return {"title": title, "destinations": destinations, "replication": replication, "hash": method,
            "sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest(), "first": ",".join(lines[:1000])}


hosts = ["10.0.0.%d:2003" % i for i in range(1, 9)]
mixed = ["10.0.0.%d:%d%s" % (i % 5, 2003 + i, ":" + str((i * 7) % 20) if i % 3 else "") for i in range(20)]
print(json.dumps([
    case("hosts", hosts, 1, "carbon_ch-c-relay"),
    case("sixty instances with collisions", ["10.0.%d.1:2003:%s" % (i // 4, "badc"[i % 4]) for i in range(60)], 3,
         "carbon_ch-c-relay"),
    case("hosts", hosts, 2, "fnv1a_ch"),
    case("ports of one host", ["10.0.0.1:%d" % p for p in range(2003, 2043)], 3, "fnv1a_ch"),
    case("with and without instances", mixed, 2, "fnv1a_ch"),
    case("hosts", hosts, 1, "jump_fnv1a_ch"),
    case("hosts, all copies", hosts, 8, "jump_fnv1a_ch"),
    case("with and without instances", mixed, 3, "jump_fnv1a_ch"),
    case("letters", ["h%d:2003:%s" % (i, "fbdace"[i]) for i in range(6)], 2, "jump_fnv1a_ch"),
], indent=1))
