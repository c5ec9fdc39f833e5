/* fleet-replay.c - what is in servers' logs; docs/recovery.md. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fleet/fleet.h>

#include "fleet/config/train_config.h"
#include "ps/aggregate/update_view.h"
#include "ps/journal/journal_reader.h"
#include "ps/journal/log_end.h"
#include "ps/host/server_replay.h"

static const char usage[] =
    "usage: fleet-replay [--update N | --until-nan | --key TABLE:KEY] LOG\n"
    "       fleet-replay --config FILE [--to-step N] [--save FOLDER]\n"
    "                    [--update N | --until-nan] LOGS\n"
    "       fleet-replay --end LOGS\n"
    "\n"
    "Prints the records of a lane's log, LOG a folder server-N/lane-M, one a "
    "line.\n"
    "  --update N       update N alone, with its sections and their norms\n"
    "  --until-nan      the first update with a gradient that is not finite; "
    "ends\n"
    "                   with 1 if there is one\n"
    "  --key TABLE:KEY  the updates with a gradient of that row; TABLE is its\n"
    "                   number among all tables by name, from 0\n"
    "\n"
    "Or makes the parameters again that the configuration FILE of fleet-train "
    "was\ntraining, LOGS being the folder with server-0, server-1, ...\n"
    "  --to-step N      as of update N; without it, as of the logs' end\n"
    "  --save FOLDER    writes a checkpoint of that\n"
    "  --update N       prints what update N has changed\n"
    "  --until-nan      prints the first update behind which a weight is not\n"
    "                   finite; ends with 1 if there is one\n"
    "\n"
    "Or writes down, with --end, that the job of LOGS is over, where servers "
    "have\ndied: the next job in that folder begins anew. Logs of servers that "
    "run stay as\nthey are; it ends with 1 then.\n";

typedef enum want { WANT_ALL, WANT_UPDATE, WANT_NAN, WANT_KEY } want;

/* Where a worker is, by the records so far. */
typedef struct place {
    uint64_t batches; /* of its pass, or of what the log has of it */
    uint64_t passes;  /* that are over */
} place;

typedef struct listing {
    want want;
    uint64_t update, key, to_step;
    uint32_t table;
    bool found;
    const char *config, *save;
    bool ends;  /* the logs are of a job that is over */
    bool whole; /* the log has its first record */
    place at[FL_MOST_STREAM];
} listing;

static const char *name_of(uint16_t kind)
{
    static const char *const name[] = {"?",     "run",   "place",   "update",
                                       "leave", "pass",  "reduced", "command",
                                       "state", "dense", "table",   "rows",
                                       "whole", "life",  "lease",   "bye"};

    return kind < sizeof name / sizeof *name ? name[kind] : name[0];
}

/* --- updates -------------------------------------------------------------- */

static bool has_key(const fl_section_view *s, const listing *l)
{
    bool has = false;

    if (s->head->op != FL_SECTION_ROWS || s->head->table != l->table)
        return false;
    for (uint32_t i = 0; i < s->head->n_key; i++)
        has = has || s->key[i] == l->key;
    return has;
}

static bool is_finite(const fl_section_view *s)
{
    for (uint64_t i = 0; i < s->head->n_float; i++)
        if (!isfinite(s->value[i]))
            return false;
    return true;
}

static double norm_of(const fl_section_view *s)
{
    double sum = 0;

    for (uint64_t i = 0; i < s->head->n_float; i++)
        sum += (double)s->value[i] * (double)s->value[i];
    return sqrt(sum);
}

static void print_section(const fl_section_view *s)
{
    if (s->head->op == FL_SECTION_ROWS)
        printf("  table %u: %u rows, norm %.9g\n", s->head->table,
               s->head->n_key, norm_of(s));
    else
        printf("  dense: %u blocks, norm %.9g\n", s->head->n_key, norm_of(s));
}

/* Which batches of the worker it is of. A log that was cut does not know how
 * many passes there were before, nor, in its first pass, how many batches. */
static void print_place(const listing *l, const fl_stream_record *s)
{
    const place *at = &l->at[s->stream];

    printf(" (");
    if (l->whole)
        printf("pass %" PRIu64 ", ", at->passes + 1);
    printf("batch %" PRIu64, at->batches + 1);
    if (s->n_batch > 1)
        printf(" to %" PRIu64, at->batches + s->n_batch);
    if (!l->whole)
        printf(at->passes > 0 ? " of a pass" : " of this log");
    printf(")");
}

static void print_update(const fl_journal_record *r, const fl_update_view *v,
                         const listing *l)
{
    printf("%" PRIu64 " update %" PRIu64 ", %zu bytes, %u batches, clip %.9g, "
           "of",
           r->lsn, v->head->version + 1, r->size, v->head->n_batch,
           (double)v->head->clip);
    for (uint32_t i = 0; i < v->head->n_stream; i++) {
        printf("%s worker %u step %" PRIu64, i > 0 ? "," : "",
               v->stream[i].stream, v->stream[i].step);
        if (l->want != WANT_ALL && v->stream[i].stream < FL_MOST_STREAM)
            print_place(l, &v->stream[i]);
    }
    printf("\n");
}

static void note_update(listing *l, const fl_update_view *v)
{
    for (uint32_t i = 0; i < v->head->n_stream; i++)
        if (v->stream[i].stream < FL_MOST_STREAM)
            l->at[v->stream[i].stream].batches += v->stream[i].n_batch;
}

static void note_pass(const fl_journal_record *r, listing *l)
{
    const fl_stream_record *s = (const void *)r->data;

    for (size_t i = 0; i < r->size / sizeof *s; i++)
        if (s[i].stream < FL_MOST_STREAM)
            l->at[s[i].stream] =
                (place){.passes = l->at[s[i].stream].passes + 1};
}

/* Is the update one that was asked for? */
static fleet_status look_at(const fl_journal_record *r, const listing *l,
                            fl_update_view v, bool *wanted)
{
    fl_section_view s;
    bool more = true;

    *wanted = l->want == WANT_ALL ||
              (l->want == WANT_UPDATE && l->update == v.head->version + 1);
    while (more) {
        FL_TRY(fl_update_view_next(r, &v, &s, &more));
        *wanted =
            *wanted || (more && ((l->want == WANT_KEY && has_key(&s, l)) ||
                                 (l->want == WANT_NAN && !is_finite(&s))));
    }
    return FLEET_OK;
}

static fleet_status print_wanted(const fl_journal_record *r, const listing *l,
                                 fl_update_view v)
{
    fl_section_view s;
    bool more = l->want != WANT_ALL;

    print_update(r, &v, l);
    while (more) {
        FL_TRY(fl_update_view_next(r, &v, &s, &more));
        if (more)
            print_section(&s);
    }
    return FLEET_OK;
}

static fleet_status list_update(const fl_journal_record *r, listing *l)
{
    fl_update_view v;
    bool wanted;

    FL_TRY(fl_update_view_of(r, &v));
    FL_TRY(look_at(r, l, v, &wanted));
    if (wanted && (l->want != WANT_NAN || !l->found)) {
        l->found = true;
        FL_TRY(print_wanted(r, l, v));
    }
    note_update(l, &v);
    return FLEET_OK;
}

/* --- all records ---------------------------------------------------------- */

static fleet_status list_record(const fl_journal_record *r, listing *l)
{
    l->whole = l->whole || r->lsn == 1;
    if (r->kind == FL_LANE_RECORD_UPDATE)
        return list_update(r, l);
    if (r->kind == FL_LANE_RECORD_PASS)
        note_pass(r, l);
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

/* --- parameters ----------------------------------------------------------- */

/* What is made again, of which logs. */
typedef struct making {
    listing *l;
    const char *logs;
} making;

static void print_line(void *user, const char *line)
{
    (void)user;
    printf("%s\n", line);
}

static fleet_status make_again(void *arg, fleet *f)
{
    const making *m = arg;
    const fleet_replay_options o = {
        .log = m->logs,
        .to_update = (int64_t)m->l->to_step,
        .save = m->l->save,
        .until_nan = m->l->want == WANT_NAN,
        .show_update = m->l->want == WANT_UPDATE ? (int64_t)m->l->update : 0,
        .say = print_line};
    fleet_replay_result r;

    FL_TRY(fleet_replay_log(f, &o, &r));
    m->l->found = r.nan_update > 0;
    if (m->l->save)
        printf("%s: as of update %" PRId64 "\n", m->l->save, r.update);
    return FLEET_OK;
}

/* The model as server 0 has made it, which needs no data. */
static fleet_status make_config(listing *l, const char *logs)
{
    making m = {l, logs};
    char endpoints[FL_MOST_SERVER * 20] = "";
    fl_log_facts facts;
    fleet_role role = {.kind = FLEET_SERVER, .server_endpoints = endpoints};

    FL_TRY(fl_log_facts_read(logs, 0, &facts));
    role.worker_num = facts.n_worker;
    for (int i = 0; i < facts.n_server; i++) {
        size_t used = strlen(endpoints);

        snprintf(endpoints + used, sizeof endpoints - used, "%sinproc://%d",
                 i > 0 ? "," : "", i);
    }
    return fl_config_with_model(l->config, &role, make_again, &m);
}

/* --- a job that is over --------------------------------------------------- */

/* Of all servers, and then `lives`, if one of them runs. */
static fleet_status end_logs(const char *logs, bool *lives)
{
    static const char *const said[] = {
        [FL_LOG_END_BEFORE] = "had ended",
        [FL_LOG_END_LIVES] = "is in use by a process, and stays as it is",
        [FL_LOG_END_NOW] = "has ended"};
    bool any = false;

    for (int i = 0; i < FL_MOST_SERVER; i++) {
        fl_log_end how;

        FL_TRY(fl_log_end_one(logs, i, NULL, &how));
        if (how == FL_LOG_END_NONE)
            continue;
        any = true;
        *lives = *lives || how == FL_LOG_END_LIVES;
        printf("server %d: its log %s\n", i, said[how]);
    }
    return any ? FLEET_OK
               : fl_fail(FLEET_ENOENT,
                         "%s: expected the folder of a job's logs, with "
                         "server-0, server-1, ...",
                         logs);
}

/* --- options -------------------------------------------------------------- */

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

static bool read_step(const char *text, uint64_t *n)
{
    const char *end;

    return read_number(text, 0, n, &end) && *n > 0 && *n <= INT64_MAX;
}

static bool read_want(int option, const char *text, listing *l)
{
    const char *end;
    uint64_t table;

    if (l->want != WANT_ALL)
        return false;
    l->want = option == 'n' ? WANT_NAN : option == 'u' ? WANT_UPDATE : WANT_KEY;
    if (option == 'n')
        return true;
    if (option == 'u')
        return read_step(text, &l->update);
    if (option != 'k' || !read_number(text, ':', &table, &end) ||
        table > UINT32_MAX)
        return false;
    l->table = (uint32_t)table;
    return read_number(end + 1, 0, &l->key, &end);
}

static bool read_option(int option, const char *text, listing *l)
{
    switch (option) {
    case 'c':
        l->config = text;
        return true;
    case 's':
        l->save = text;
        return true;
    case 't':
        return read_step(text, &l->to_step);
    case 'e':
        l->ends = true;
        return true;
    default:
        return read_want(option, text, l);
    }
}

/* What is about parameters needs a configuration, and has no keys. */
static bool fits(const listing *l)
{
    if (l->ends)
        return l->want == WANT_ALL && !l->config && !l->save && !l->to_step;
    return l->config ? l->want != WANT_KEY : !l->save && l->to_step == 0;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"help", no_argument, NULL, 'h'},
        {"update", required_argument, NULL, 'u'},
        {"until-nan", no_argument, NULL, 'n'},
        {"key", required_argument, NULL, 'k'},
        {"config", required_argument, NULL, 'c'},
        {"to-step", required_argument, NULL, 't'},
        {"save", required_argument, NULL, 's'},
        {"end", no_argument, NULL, 'e'},
        {0}};
    static listing l;
    fleet_status status;
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'h')
            return fputs(usage, stdout) < 0 || fflush(stdout) != 0;
        if (!read_option(option, optarg, &l))
            return fputs(usage, stderr), 2;
    }
    if (argc - optind != 1 || !fits(&l))
        return fputs(usage, stderr), 2;
    status = l.ends     ? end_logs(argv[optind], &l.found)
             : l.config ? make_config(&l, argv[optind])
                        : list_all(argv[optind], &l);
    if (status != FLEET_OK || fflush(stdout) != 0) {
        fprintf(stderr, "fleet-replay: %s\n", fleet_last_error());
        return 2;
    }
    return l.ends || l.want == WANT_NAN ? l.found : 0;
}
