/* memory_left.c - /proc/meminfo, and the limits of control groups, of both
 * versions. */
#include "base/memory_left.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *open_below(const char *root, const char *path)
{
    char at[PATH_MAX];

    return snprintf(at, sizeof at, "%s%s", root, path) < (int)sizeof at
               ? fopen(at, "re")
               : NULL;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The number behind a word that begins a line; -1: no line has it. */
static int64_t number_behind(FILE *f, const char *word)
{
    const size_t n = strlen(word);
    char line[PATH_MAX + 100];

    while (fgets(line, sizeof line, f))
        if (strncmp(line, word, n) == 0 && (line[n] == ' ' || line[n] == ':'))
            return strtoll(line + n + strspn(line + n, ": "), NULL, 10);
    return -1;
}

static int64_t left_of_system(const char *root)
{
    FILE *f = open_below(root, "/proc/meminfo");
    int64_t kb = f ? number_behind(f, "MemAvailable") : -1;

    if (f)
        fclose(f);
    return kb < 0 ? INT64_MAX : kb * 1024;
}

/* Of a file that is one number; -1: it is none, such as "max". */
static int64_t number_of(const char *root, const char *folder, const char *name)
{
    char path[PATH_MAX], text[40] = "", *end;
    long long x = -1;
    FILE *f;

    snprintf(path, sizeof path, "/sys/fs/cgroup%.3000s/%s", folder, name);
    f = open_below(root, path);
    if (!f)
        return -1;
    if (fgets(text, sizeof text, f)) {
        x = strtoll(text, &end, 10);
        x = end == text ? -1 : x;
    }
    fclose(f);
    return x;
}

/* What the kernel would drop first of what it has cached for the group. */
static int64_t cached_files(const char *root, const char *folder)
{
    char path[PATH_MAX];
    int64_t n;
    FILE *f;

    snprintf(path, sizeof path, "/sys/fs/cgroup%.3000s/memory.stat", folder);
    f = open_below(root, path);
    if (!f)
        return 0;
    n = number_behind(f, "inactive_file");
    fclose(f);
    return n < 0 ? 0 : n;
}

static int64_t left_of_group(const char *root, const char *folder, bool second)
{
    int64_t most = number_of(root, folder,
                             second ? "memory.max" : "memory.limit_in_bytes");
    int64_t used = number_of(
        root, folder, second ? "memory.current" : "memory.usage_in_bytes");

    if (most < 0 || used < 0)
        return INT64_MAX;
    used -= smaller(cached_files(root, folder), used);
    return most > used ? most - used : 0;
}

/* A group and all that it is in. */
static int64_t left_of_groups(const char *root, char *folder, bool second)
{
    int64_t left = INT64_MAX;
    char *slash;

    for (;;) {
        left = smaller(left, left_of_group(root, folder, second));
        slash = strrchr(folder, '/');
        if (!slash)
            return left;
        *slash = 0;
    }
}

/* A line is HIERARCHY:CONTROLLERS:PATH; version 2 has no controllers. In a
 * container the path may be the host's: the root is looked at in any case. */
static int64_t left_of_line(const char *root, char *line)
{
    char *names = strchr(line, ':'),
         *path = names ? strchr(names + 1, ':') : NULL;
    char folder[PATH_MAX];

    if (!path)
        return INT64_MAX;
    *path++ = 0;
    path[strcspn(path, "\n")] = 0;
    if (names[1] == 0) {
        snprintf(folder, sizeof folder, "%s", strcmp(path, "/") ? path : "");
        return left_of_groups(root, folder, true);
    }
    if (!strstr(names + 1, "memory"))
        return INT64_MAX;
    snprintf(folder, sizeof folder, "/memory%s", strcmp(path, "/") ? path : "");
    return left_of_groups(root, folder, false);
}

int64_t fl_memory_left_below(const char *root)
{
    int64_t left = left_of_system(root);
    FILE *f = open_below(root, "/proc/self/cgroup");
    char line[PATH_MAX + 100];

    while (f && fgets(line, sizeof line, f))
        left = smaller(left, left_of_line(root, line));
    if (f)
        fclose(f);
    return left;
}

int64_t fl_memory_left(void)
{
    return fl_memory_left_below("");
}
