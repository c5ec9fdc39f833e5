/* pairs.h - ours and the peer's in turn, many times for a short while, because
 * other machines on the same host come and go: the quietest third counts. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

typedef struct pair {
    double ours, peer; /* rates: more is better */
    double foreign;    /* processors that others used meanwhile */
} pair;

enum { MOST_PAIRS = 64 };

typedef struct pairs {
    pair pair[MOST_PAIRS];
    int n;
    double began, machine, process;
} pairs;

/* Processor seconds that were used, or stolen by the host. */
static inline double machine_seconds(void)
{
    double v[8] = {0}, sum = 0;
    FILE *f = fopen("/proc/stat", "r");
    char name[8];

    if (f && fscanf(f, "%7s %lf %lf %lf %lf %lf %lf %lf %lf", name, v, v + 1,
                    v + 2, v + 3, v + 4, v + 5, v + 6, v + 7) == 9)
        for (int i = 0; i < 8; i++)
            sum += i == 3 || i == 4 ? 0 : v[i];
    if (f)
        fclose(f);
    return sum / (double)sysconf(_SC_CLK_TCK);
}

/* Other processes of the benchmark: what they use is not foreign. */
enum { MOST_WATCHED = 8 };
static clockid_t watched[MOST_WATCHED] = {CLOCK_PROCESS_CPUTIME_ID};
static int n_watched = 1;

static inline void pair_watch(pid_t pid)
{
    if (n_watched < MOST_WATCHED &&
        clock_getcpuclockid(pid, &watched[n_watched]) == 0)
        n_watched++;
}

static inline double process_seconds(void)
{
    double sum = 0;

    for (int i = 0; i < n_watched; i++) {
        struct timespec t = {0, 0};

        clock_gettime(watched[i], &t);
        sum += (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
    }
    return sum;
}

static inline void pair_begin(pairs *p)
{
    p->began = now();
    p->machine = machine_seconds();
    p->process = process_seconds();
}

static inline double pair_foreign(const pairs *p)
{
    double wall = now() - p->began;

    return (machine_seconds() - p->machine - process_seconds() + p->process) /
           wall;
}

static inline void pair_end(pairs *p, double ours, double peer)
{
    p->pair[p->n++] = (pair){ours, peer, pair_foreign(p)};
}

static inline int quietest_first(const void *a, const void *b)
{
    const pair *x = a, *y = b;

    return x->foreign < y->foreign ? -1 : x->foreign > y->foreign;
}

static inline int smaller_ratio_first(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    double d = x->ours / x->peer - y->ours / y->peer;

    return d < 0 ? -1 : d > 0;
}

/* The median of the quietest third. */
static inline pair pairs_middle(pairs *p)
{
    int n = (p->n + 2) / 3;
    double foreign;
    pair middle;

    qsort(p->pair, (size_t)p->n, sizeof *p->pair, quietest_first);
    foreign = p->pair[n - 1].foreign;
    qsort(p->pair, (size_t)n, sizeof *p->pair, smaller_ratio_first);
    middle = p->pair[n / 2];
    middle.foreign = foreign;
    return middle;
}

/* The line of a row. */
static inline void pairs_print(pairs *p, const char *id, double floor_,
                               double goal, const char *unit, const char *peer)
{
    pair middle = pairs_middle(p);

    printf("{\"id\":\"%s\",\"ratio\":%.3f,\"floor\":%.2f,\"goal\":%.2f,"
           "\"ours\":%.6g,\"peer\":%.6g,\"unit\":\"%s\",\"peer_name\":\"%s\","
           "\"rounds\":%d,\"foreign\":%.2f}\n",
           id, middle.ours / middle.peer, floor_, goal, middle.ours,
           middle.peer, unit, peer, (p->n + 2) / 3, middle.foreign);
}
