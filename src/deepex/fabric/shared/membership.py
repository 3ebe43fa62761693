"""How ranks of one host become a group: they learn of each other through the store, and open each other's slots.

It knows the rendezvous, processes and slots, and nothing of collectives.
"""

import json
import os
import resource
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch._C._distributed_c10d import Store  # torch.distributed leaves it out of its types

from deepex.errors import ConfigError
from deepex.fabric.rendezvous import Rendezvous
from deepex.fabric.shared.backoff import Backoff
from deepex.fabric.shared.barrier import Barrier
from deepex.fabric.shared.failure import FailureDetector
from deepex.fabric.shared.peer_group import PeerGroup
from deepex.fabric.shared.peer_slot import PeerSlot
from deepex.fabric.shared.peers import Peers
from deepex.fabric.shared.segment import Location, Segment, open_peer

FILES_PER_PEER = 16  # its process, its slot, its blocks and groups; with 64 ranks the usual 1,024 would be few


def join_host(rendezvous: Rendezvous, ranks: Sequence[int]) -> tuple[Peers, PeerGroup]:
    """The first group of some ranks of one host, and what all further groups of them share; called by just those.

    ConfigError on all of them if they run on several hosts or can't open each other's memory.
    """
    hosts = _check_hosts(rendezvous, ranks)
    peers = Peers(hosts)  # whose processes count as theirs once their slots are open: in containers numbers differ
    segment = PeerSlot.segment()
    mine = {"process": os.getpid(), "cores": sorted(os.sched_getaffinity(0)), "location": segment.location}
    texts = _exchange(rendezvous, ranks, peers, "process", json.dumps(mine))
    found = {rank: json.loads(text) for rank, text in zip(ranks, texts, strict=True)}
    processes = {rank: int(each["process"]) for rank, each in found.items()}
    _allow_more_files(FILES_PER_PEER * len(processes))
    slots: list[PeerSlot] = []
    problem = ""
    try:
        locations = {rank: each["location"] for rank, each in found.items()}
        slots = _open_slots(segment, rendezvous.world.rank, processes, locations)
        peers = Peers(hosts, processes, num_cores=len({core for each in found.values() for core in each["cores"]}))
    except (OSError, LookupError) as error:
        problem = f"{rendezvous.world} can't open the memory of its peers ({error})"
    if problems := [text for text in _exchange(rendezvous, ranks, peers, "problem", problem) if text]:
        peers.leave()
        raise ConfigError(
            f"fabric shared: {problems[0]}. It joins ranks of one user that see each other's processes in /proc. "
            "Start them in one container, or use --fabric torch."
        )
    return peers, _form(rendezvous, ranks, peers, slots)


def join_group(rendezvous: Rendezvous, ranks: Sequence[int], peers: Peers) -> PeerGroup:
    """A further group of ranks that are peers already; called by just those.

    Nobody may drop its group before all have joined, which a first collective ensures.
    """
    segment = PeerSlot.segment()
    texts = _exchange(rendezvous, ranks, peers, "group", json.dumps(segment.location))
    locations = {rank: json.loads(text) for rank, text in zip(ranks, texts, strict=True)}
    try:
        slots = _open_slots(segment, rendezvous.world.rank, peers.processes, locations)
    except (OSError, LookupError) as error:
        raise FailureDetector(rendezvous, ranks, peers).unreachable("forming a group", error) from error
    return _form(rendezvous, ranks, peers, slots)


def _check_hosts(rendezvous: Rendezvous, ranks: Sequence[int]) -> dict[int, str]:
    """The host of each rank. It must be one, by its name and since the same start of it, and its processors compute."""
    world, file = rendezvous.world, Path("/proc/sys/kernel/random/boot_id")
    boot = file.read_text() if file.exists() else ""  # some containers have none
    texts = _exchange(rendezvous, ranks, Peers(), "host", json.dumps([world.host, boot]))
    hosts = {rank: json.loads(text)[0] for rank, text in zip(ranks, texts, strict=True)}
    if len(set(texts)) > 1 or world.device != "cpu":
        raise ConfigError(
            f"fabric shared: given ranks on {len(set(texts))} hosts ({', '.join(sorted(set(hosts.values())))}) and "
            f"device {world.device}; it joins ranks of one host that compute on its processors. Use --fabric torch, or "
            "--sync hierarchical, which is shared inside each host."
        )
    return hosts


def _exchange(rendezvous: Rendezvous, ranks: Sequence[int], peers: Peers, topic: str, text: str) -> list[str]:
    """Every rank's text, in rank order, through the rendezvous's store."""
    own, detector = rendezvous.world.rank, FailureDetector(rendezvous, ranks, peers)
    store = rendezvous.store(f"shared/{topic}/{','.join(map(str, ranks))}")
    turn = store.add(f"turns/{own}", 1)  # the same ranks may form a group again
    store.set(f"{turn}/{own}", text)
    keys = [f"{turn}/{rank}" for rank in ranks]
    backoff = Backoff(is_oversubscribed=True)
    while not store.check(keys):
        if peers.engine.own.advance():
            backoff.reset()
        elif waited := backoff.pause():
            detector.check("rendezvous", partial(_find_absent, store, keys), list, waited)
    return [store.get(key).decode() for key in keys]


def _find_absent(store: Store, keys: Sequence[str]) -> list[int]:
    return [at for at, key in enumerate(keys) if not store.check([key])]


def _open_slots(
    own: Segment, own_rank: int, processes: Mapping[int, int], locations: Mapping[int, Sequence[int]]
) -> list[PeerSlot]:
    """The slots of all ranks that have a location; OSError or LookupError where one can't be opened."""
    return [
        PeerSlot(own if rank == own_rank else open_peer(processes[rank], Location(*location)))
        for rank, location in locations.items()
    ]


def _form(rendezvous: Rendezvous, ranks: Sequence[int], peers: Peers, slots: Sequence[PeerSlot]) -> PeerGroup:
    world = replace(rendezvous.world, rank=ranks.index(rendezvous.world.rank), size=len(ranks))
    barrier = Barrier([slot.counter for slot in slots], world.rank)
    peers.barriers.add(barrier)
    return PeerGroup(
        world=world,
        ranks=ranks,
        slots=slots,
        barrier=barrier,
        blocks=peers.blocks,
        detector=FailureDetector(rendezvous, ranks, peers),
    )


def _allow_more_files(num_files: int) -> None:
    """Let this process open so many more, as far as the system does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        wanted = soft + num_files
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
