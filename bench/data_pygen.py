"""data_pygen.py - Criteo's lines to MultiSlot lines, as a data generator in a
pipe_command does it: split, float(), hash(), join. Leaner than Fleet's own
MultiSlotDataGenerator, which goes through lists of (name, values)."""
import sys

LOW = [0, -3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
RANGE = [20, 603, 100, 50, 64000, 500, 100, 50, 500, 10, 10, 10, 50]
ROWS = 1000001
NAMES = [str(i) for i in range(14, 40)]


def convert(line):
    cells = line.rstrip("\n").split("\t")
    out = ["1", cells[0], "13"]
    for x, low, size in zip(cells[1:14], LOW, RANGE):
        out.append(str((float(x) - low) / size) if x else "0.0")
    for name, x in zip(NAMES, cells[14:40]):
        out.append("1")
        out.append(str(hash(name + x) % ROWS))
    return " ".join(out) + "\n"


write = sys.stdout.write
for line in sys.stdin:
    write(convert(line))
