/* show.c - tables of lanes and of workers; JSON. */
#include "show.h"

#include "said.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_write.h"
#include "base/memory.h"
#include "base/text.h"
#include "ps/worker/handshake.h"

/* --- what a lane says ----------------------------------------------------- */

/* "-": it does not say, as a command has its store. */
static const char *amount(const fl_at *lane, const char *key, char text[24])
{
    int64_t n = said_number(lane, key);

    snprintf(text, 24, "%" PRId64, n);
    return n < 0 ? "-" : text;
}

/* --- as a table ----------------------------------------------------------- */

/* One line of a terminal, whatever processes call themselves. */
__attribute__((format(printf, 1, 2))) static void put_line(const char *format,
                                                           ...)
{
    char line[FL_MOST_ESCAPED];
    va_list args;

    va_start(args, format);
    fl_format(line, sizeof line, format, args);
    va_end(args);
    fl_text_escape(line, sizeof line);
    puts(line);
}

static void show_lane(const asked_lane *l)
{
    fl_at at = fl_at_root(l->is);
    char rows[24], bytes[24], dense[24];

    put_line("%6" PRId64 " %4" PRId64 "  %-7s %4" PRId64 " %10" PRId64
             " %11s %12s %10s  %s, by server %d (%s)",
             said_number(&at, "server"), said_number(&at, "lane"),
             said_text(&at, "copy"), said_number(&at, "view"),
             said_number(&at, "version"), amount(&at, "rows", rows),
             amount(&at, "bytes", bytes), amount(&at, "dense", dense),
             said_text(&at, "state"), l->server, said_text(&at, "process"));
}

/* Of a worker what the lanes that lead say. */
typedef struct worker_sum {
    int64_t least, most, silent_ms;
    const char *state, *process;
} worker_sum;

static void add_word(worker_sum *sum, const fl_at *one)
{
    int64_t step = said_number(one, "step"), ms = said_number(one, "silent_ms");
    const char *process = said_text(one, "process");

    if (!sum->state || step < sum->least)
        sum->least = step;
    if (!sum->state || step > sum->most)
        sum->most = step;
    if (!sum->state || ms > sum->silent_ms)
        sum->silent_ms = ms;
    if (strcmp(process, "-") != 0 || !sum->process)
        sum->process = process;
    sum->state = said_text(one, "state");
}

static worker_sum sum_worker(const asked_lane *lane, int n, int worker)
{
    worker_sum sum = {0};

    for (int i = 0; i < n; i++) {
        fl_at at = fl_at_root(lane[i].is), list = fl_at_key(&at, "workers"),
              one;

        if (lane[i].server < 0 || !lane[i].is || !said_leads(&lane[i]))
            continue;
        one = fl_at_index(&list, worker);
        if (one.json)
            add_word(&sum, &one);
    }
    return sum;
}

/* "-": never yet. */
static const char *ago(int64_t ms, char text[40])
{
    snprintf(text, 40, "%" PRId64 " ms ago", ms);
    return ms < 0 ? "-" : text;
}

static void show_workers(const asked_lane *lane, int n)
{
    for (int w = 0;; w++) {
        worker_sum sum = sum_worker(lane, n, w);
        char heard[40];

        if (!sum.state)
            return;
        if (w == 0)
            printf(
                "\nworker  steps (least, most of a lane)  heard of  state\n");
        put_line("%6d  %12" PRId64 " %12" PRId64 "  %19s  %s (%s)", w,
                 sum.least, sum.most, ago(sum.silent_ms, heard), sum.state,
                 sum.process);
    }
}

static int count_silent(const asked_job *j, const fl_role *role)
{
    int n;
    const asked_lane *lane = ask_lanes(j, &n);
    int silent = 0;

    for (int i = 0; i < n; i++) {
        if (!ask_misses(j, i))
            continue;
        silent++;
        fprintf(stderr, "fleetctl: server %d at %s does not answer%s\n",
                lane[i].server, fl_address_text(role->server[lane[i].server]),
                lane[i].number > 0 ? " for one of its lanes" : "");
    }
    return silent;
}

static int flushed(int silent)
{
    return fflush(stdout) == 0 && !ferror(stdout) ? silent : -1;
}

int show_table(const asked_job *j, const fl_role *role)
{
    int n;
    const asked_lane *lane = ask_lanes(j, &n);

    printf("job \"%s\", %d servers\n\n"
           "server lane  copy    view    version        rows        bytes"
           "      dense  state\n",
           role->job_id, role->server_num);
    for (int i = 0; i < n; i++)
        if (lane[i].server >= 0 && lane[i].is)
            show_lane(&lane[i]);
    show_workers(lane, n);
    return flushed(count_silent(j, role));
}

/* --- as JSON -------------------------------------------------------------- */

static fleet_status put_lane(fl_json *list, const asked_lane *l)
{
    fl_json *one = fl_json_copy(l->is);

    FL_TRY(fl_json_append(list, one));
    return fl_json_put(one, "at_server", fl_json_int(l->server));
}

static fleet_status put_all(const asked_job *j, const fl_role *role,
                            fl_json *json)
{
    int n;
    const asked_lane *lane = ask_lanes(j, &n);
    fl_json *servers, *lanes;

    FL_TRY(fl_json_put(json, "job", fl_json_string(role->job_id)));
    FL_TRY(fl_json_put_array(json, "servers", &servers));
    for (int s = 0; s < role->server_num; s++)
        FL_TRY(fl_json_append(
            servers, fl_json_string(fl_address_text(role->server[s]))));
    FL_TRY(fl_json_put_array(json, "lanes", &lanes));
    for (int i = 0; i < n; i++)
        if (lane[i].server >= 0 && lane[i].is)
            FL_TRY(put_lane(lanes, &lane[i]));
    return FLEET_OK;
}

int show_json(const asked_job *j, const fl_role *role)
{
    fl_json *json = fl_json_object();
    char *text =
        put_all(j, role, json) == FLEET_OK ? fl_json_print(json, true) : NULL;

    fl_json_free(json);
    if (!text)
        return -1;
    puts(text);
    fl_free(text);
    return flushed(count_silent(j, role));
}
