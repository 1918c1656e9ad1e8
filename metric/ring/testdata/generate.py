"""Writes the expected placements of the tests with carbon's own ring. Run it with a Python that has carbon 1.1.10:

    python generate.py > placements.json

The names are those of testName in ring_test.go.
"""
import hashlib
import json

from carbon import routers, util
from carbon.hashing import ConsistentHashRing


def name(i):
    x = (i * 2654435761 + 12345) & 0xFFFFFFFF
    tags = ";dc=dc%d;host=web%02d" % (x % 3, x % 17) if i % 10 == 7 else ""
    return "servers.host%d.%s.n%d%s" % (i % 997, ("cpu", "memory", "disk", "network")[x % 4], x, tags)


class Settings(dict):
    def __getattr__(self, key):
        return self[key]


def through_router(destinations, replication, diverse, hash_type):
    router = routers.ConsistentHashingRouter(Settings(
        REPLICATION_FACTOR=replication, DIVERSE_REPLICAS=diverse, ROUTER_HASH_TYPE=hash_type,
        DESTINATION_POOL_REPLICAS=False))
    parsed = [util.parseDestination(d) for d in destinations]
    for d in parsed:
        router.addDestination(d)
    index = {d: i for i, d in enumerate(parsed)}
    return lambda key: [index[d] for d in router.getDestinations(key)]


def case(title, destinations, replication, diverse, hash_type="carbon_ch"):
    place = through_router(destinations, replication, diverse, hash_type)
    lines = [" ".join(map(str, place(name(i)))) for i in range(100000)]
    return {"title": title, "destinations": destinations, "replication": replication, "diverse": diverse,
            "hash": hash_type, "sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
            "first": ",".join(lines[:1000])}


eight = ["10.0.0.%d:2004" % i for i in range(1, 9)]
instances = ["10.0.0.%d:%d:%s" % (h, 2004 + 100 * k, "abcd"[k]) for h in (1, 2) for k in range(4)]
many = ["cache%d.example.org:2004:%s" % (i // 4, "abcd"[i % 4]) for i in range(60)]
three = ["127.0.0.1:%d:%s" % (2004 + i, "abc"[i]) for i in range(3)]
print(json.dumps([
    case("eight hosts", eight, 1, True),
    case("eight hosts, two copies", eight, 2, True),
    case("eight hosts, three copies, not diverse", eight, 3, False),
    case("instances on two hosts", instances, 1, True),
    case("instances on two hosts, two diverse copies", instances, 2, True),
    case("instances on two hosts, three diverse copies of two hosts", instances, 3, True),
    case("instances on two hosts, two copies", instances, 2, False),
    case("instances of two hosts, all copies", instances, 8, False),
    case("sixty destinations with collisions", many, 3, True),
    case("sixty destinations with collisions, not diverse", many, 3, False),
    case("IPv6", ["[2001:db8::1]:2004:a", "[2001:db8::2]:2004", "[::1]:2004:b"], 2, True),
    case("fnv1a", three, 2, False, "fnv1a_ch"),
    case("fnv1a of sixty instances", ["h%d:2004:%d" % (i % 7, i) for i in range(60)], 3, True, "fnv1a_ch"),
], indent=1))
