#!/usr/bin/env python3
"""accessor_ref.py: what 1,000 random histories leave of a row's accessor, by
formulas of its own: test/golden/accessor.txt, which accessor_test.c compares.

A history is 120 events: updates of a row that was shown and clicked in a slot,
shrinks, and saves of each mode; every second one has no updates in its second
half. A row that a shrink lets go begins anew. A line
has show, click and delta score as bits of float32, unseen days, slot, how often
the row went, and in how many saves it was. The defaults are those of Fleet's
CtrCommonAccessor.
"""
import struct


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def bits(x):
    return struct.unpack("I", struct.pack("f", x))[0]


NONCLK, CLICK, DECAY = f32(0.1), 1.0, f32(0.98)
DELETE, DELETE_DAYS = f32(0.8), 30
BASE, DELTA, KEEP_DAYS = 1.5, 0.25, 16


class Random:
    def __init__(self, seed):
        self.x = seed

    def below(self, n):
        self.x = (self.x * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.x >> 33) % n


def score(show, click):
    return f32(f32(f32(show - click) * NONCLK) + f32(click * CLICK))


class Row:
    def __init__(self):
        self.show = self.click = self.delta = 0.0
        self.days = self.slot = 0

    def update(self, show, click, slot):
        self.show = f32(self.show + show)
        self.click = f32(self.click + click)
        self.delta = f32(self.delta + score(show, click))
        self.days, self.slot = 0, slot

    def shrink(self):
        self.show, self.click = f32(self.show * DECAY), f32(self.click * DECAY)
        return score(self.show, self.click) < DELETE or self.days > DELETE_DAYS

    def is_in(self, mode):
        if mode in (0, 3):
            return True
        least = DELTA if mode == 1 else 0
        return (score(self.show, self.click) >= BASE and self.delta >= least
                and self.days <= KEEP_DAYS)

    def save(self, mode):
        if not self.is_in(mode):
            return False
        if mode in (1, 2):
            self.delta = 0.0
        self.days += mode == 3
        return True


def history(seed):
    random, row, gone, saved = Random(seed), Row(), 0, 0
    for i in range(120):
        event = random.below(16)
        if event < 5:
            show = 1 + random.below(6)
            click = random.below(show + 1)
            slot = random.below(9)
            if i < 60 or seed % 2 == 0:
                row.update(float(show), float(click), slot)
        elif event == 5:
            if row.shrink():
                row, gone = Row(), gone + 1
        elif event < 12:
            saved += row.save(3)
        else:
            saved += row.save((event - 12) % 3)
    print(f"{bits(row.show):08x} {bits(row.click):08x} {bits(row.delta):08x} "
          f"{row.days} {row.slot} {gone} {saved}")


for seed in range(1000):
    history(seed)
