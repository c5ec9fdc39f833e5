# adult-slots.awk - Adult's lines as MultiSlot text, for a pipe_command:
#   label, six numbers, eight ids; per slot a count and that many values.
# The numbers are standardized with the training data's mean and deviation; ids
# are a polynomial hash of the cell and its column.
BEGIN {
    FS = ","
    for (i = 32; i < 127; i++)
        code[sprintf("%c", i)] = i
    n = split("1 3 5 11 12 13", number, " ")
    split("38.58165 11.98378 10.08068 0.7346209 0.3503051 40.43746", mean, " ")
    split("13.64022 0.6307284 2.572681 2.4547 1.584557 12.34724", dev, " ")
    m = split("2 4 6 7 8 9 10 14", id, " ")
}

function trim(s) {
    sub(/^[ \t]+/, "", s)
    sub(/[ \t\r.]+$/, "", s)
    return s
}

function hash(s, column,    h, i) {
    h = column
    for (i = 1; i <= length(s); i++)
        h = (h * 31 + code[substr(s, i, 1)]) % 2147483647
    return h
}

NF == 15 && !/^\|/ {
    line = "1 " (trim($15) == ">50K") " " n
    for (i = 1; i <= n; i++) {
        x = $number[i]
        if (number[i] == 3 || number[i] == 11 || number[i] == 12)
            x = log(1 + x)
        line = line sprintf(" %.6f", (x - mean[i]) / dev[i])
    }
    for (i = 1; i <= m; i++)
        line = line " 1 " hash(trim($id[i]), id[i])
    print line
}
