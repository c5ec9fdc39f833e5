/* fleet-replay.c - what is in the log of a lane; docs/recovery.md. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/aggregate/lane_record.h"
#include "ps/journal/journal_reader.h"

static const char usage[] =
    "usage: fleet-replay [--update N | --until-nan | --key TABLE:KEY] LOG\n"
    "Prints the records of a lane's log, LOG a folder server-N/lane-M, one a "
    "line.\n"
    "  --update N       update N alone, with its sections and their norms\n"
    "  --until-nan      the first update with a gradient that is not finite; "
    "ends\n"
    "                   with 1 if there is one\n"
    "  --key TABLE:KEY  the updates with a gradient of that row; TABLE is its\n"
    "                   number among all tables by name, from 0\n";

typedef enum want { WANT_ALL, WANT_UPDATE, WANT_NAN, WANT_KEY } want;

typedef struct listing {
    want want;
    uint64_t update, key;
    uint32_t table;
    bool found;
} listing;

/* What of a record was not read yet. */
typedef struct rest {
    const char *at;
    size_t left;
} rest;

static const void *take(rest *r, uint64_t size)
{
    const void *at = r->at;

    if (size > r->left)
        return NULL;
    r->at += size;
    r->left -= (size_t)size;
    return at;
}

static const char *name_of(uint16_t kind)
{
    static const char *const name[] = {
        "?",       "run",   "place", "update", "leave", "pass",  "reduced",
        "command", "state", "dense", "table",  "rows",  "whole", "life"};

    return kind < sizeof name / sizeof *name ? name[kind] : name[0];
}

/* --- updates -------------------------------------------------------------- */

typedef struct section {
    const fl_section_record *head;
    const uint64_t *key;
    const float *value;
} section;

static bool next_section(rest *r, section *s)
{
    s->head = take(r, sizeof *s->head);
    if (!s->head || s->head->n_float > r->left / sizeof(float))
        return false;
    s->key = take(r, s->head->n_key * sizeof *s->key);
    s->value =
        take(r, (s->head->n_float + s->head->n_float % 2) * sizeof *s->value);
    return s->key && s->value;
}

static bool has_key(const section *s, const listing *l)
{
    bool has = false;

    if (s->head->op != FL_SECTION_ROWS || s->head->table != l->table)
        return false;
    for (uint32_t i = 0; i < s->head->n_key; i++)
        has = has || s->key[i] == l->key;
    return has;
}

static bool is_finite(const section *s)
{
    for (uint64_t i = 0; i < s->head->n_float; i++)
        if (!isfinite(s->value[i]))
            return false;
    return true;
}

static double norm_of(const section *s)
{
    double sum = 0;

    for (uint64_t i = 0; i < s->head->n_float; i++)
        sum += (double)s->value[i] * (double)s->value[i];
    return sqrt(sum);
}

static void print_section(const section *s)
{
    if (s->head->op == FL_SECTION_ROWS)
        printf("  table %u: %u rows, norm %.9g\n", s->head->table,
               s->head->n_key, norm_of(s));
    else
        printf("  dense: %u blocks, norm %.9g\n", s->head->n_key, norm_of(s));
}

static void print_update(const fl_journal_record *r, const fl_update_record *u,
                         const fl_stream_record *stream)
{
    printf("%" PRIu64 " update %" PRIu64 ", %zu bytes, %u batches, clip %.9g, "
           "of",
           r->lsn, u->version + 1, r->size, u->n_batch, (double)u->clip);
    for (uint32_t i = 0; i < u->n_stream; i++)
        printf("%s worker %u step %" PRIu64, i > 0 ? "," : "", stream[i].stream,
               stream[i].step);
    printf("\n");
}

static fleet_status is_short(const fl_journal_record *r)
{
    return fl_fail(FLEET_ECORRUPT, "record %" PRIu64 ", %s, is too short",
                   r->lsn, name_of(r->kind));
}

/* Is the update one that was asked for? */
static fleet_status look_at(const fl_journal_record *r, listing *l, rest b,
                            uint32_t n, bool *wanted)
{
    for (uint32_t i = 0; i < n; i++) {
        section s;

        if (!next_section(&b, &s))
            return is_short(r);
        *wanted = *wanted || (l->want == WANT_KEY && has_key(&s, l)) ||
                  (l->want == WANT_NAN && !is_finite(&s));
    }
    return FLEET_OK;
}

static fleet_status list_update(const fl_journal_record *r, listing *l)
{
    rest b = {r->data, r->size};
    const fl_update_record *u = take(&b, sizeof *u);
    const fl_stream_record *stream =
        u ? take(&b, u->n_stream * sizeof *stream) : NULL;
    bool wanted;

    if (!stream)
        return is_short(r);
    wanted = l->want == WANT_ALL ||
             (l->want == WANT_UPDATE && l->update == u->version + 1);
    FL_TRY(look_at(r, l, b, u->n_section, &wanted));
    if (!wanted || (l->want == WANT_NAN && l->found))
        return FLEET_OK;
    l->found = true;
    print_update(r, u, stream);
    for (uint32_t i = 0; l->want != WANT_ALL && i < u->n_section; i++) {
        section s;

        if (next_section(&b, &s))
            print_section(&s);
    }
    return FLEET_OK;
}

/* --- all records ---------------------------------------------------------- */

static fleet_status list_record(const fl_journal_record *r, listing *l)
{
    if (r->kind == FL_LANE_RECORD_UPDATE)
        return list_update(r, l);
    if (l->want == WANT_ALL)
        printf("%" PRIu64 " %s, %zu bytes\n", r->lsn, name_of(r->kind),
               r->size);
    return FLEET_OK;
}

static fleet_status list_all(const char *folder, listing *l)
{
    fl_journal_reader *r;
    fl_journal_record record;
    fleet_status status;
    bool more = true;

    FL_TRY(fl_journal_reader_open(&r, folder));
    do {
        status = fl_journal_next(r, &record, &more);
        if (status == FLEET_OK && more)
            status = list_record(&record, l);
    } while (status == FLEET_OK && more);
    if (status == FLEET_OK && *fl_journal_reader_end(r).cut)
        fprintf(stderr, "fleet-replay: %s\n", fl_journal_reader_end(r).cut);
    fl_journal_reader_close(r);
    return status;
}

/* A number and nothing behind it. */
static bool read_number(const char *text, char behind, uint64_t *n,
                        const char **end)
{
    char *at;

    errno = 0;
    *n = strtoull(text, &at, 10);
    *end = at;
    return *text >= '0' && *text <= '9' && errno == 0 && *at == behind;
}

static bool read_option(int option, const char *text, listing *l)
{
    const char *end;
    uint64_t table;

    if (option == 'n') {
        l->want = WANT_NAN;
        return true;
    }
    if (option == 'u') {
        l->want = WANT_UPDATE;
        return read_number(text, 0, &l->update, &end);
    }
    l->want = WANT_KEY;
    if (option != 'k' || !read_number(text, ':', &table, &end) ||
        table > UINT32_MAX)
        return false;
    l->table = (uint32_t)table;
    return read_number(end + 1, 0, &l->key, &end);
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"help", no_argument, NULL, 'h'},
        {"update", required_argument, NULL, 'u'},
        {"until-nan", no_argument, NULL, 'n'},
        {"key", required_argument, NULL, 'k'},
        {0}};
    listing l = {.want = WANT_ALL};
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'h')
            return fputs(usage, stdout) < 0 || fflush(stdout) != 0;
        if (l.want != WANT_ALL || !read_option(option, optarg, &l))
            return fputs(usage, stderr), 2;
    }
    if (argc - optind != 1)
        return fputs(usage, stderr), 2;
    if (list_all(argv[optind], &l) != FLEET_OK || fflush(stdout) != 0) {
        fprintf(stderr, "fleet-replay: %s\n", fleet_last_error());
        return 2;
    }
    return l.want == WANT_NAN ? l.found : 0;
}
