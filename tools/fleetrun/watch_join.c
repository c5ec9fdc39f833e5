/* watch_join.c - a server that joins the job while it trains, as fleetctl asks:
 * a process as any other one from then on. Until the job knows it what becomes
 * of it is a line, and no failure. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "job_journals.h"
#include "processes.h"
#include "requests.h"
#include "watch_internal.h"

static fleet_status no_place(const run_job *j, int server)
{
    if (server < j->n_server)
        return fl_fail(FLEET_EINVAL,
                       "the job began with server %d: expected the number of "
                       "one that joins",
                       server);
    return fl_fail(FLEET_EINVAL,
                   "there is no place for server %d: expected `fleetrun "
                   "--servers_max %lld`, or more, as the job began",
                   server, server + 1LL);
}

/* Its process would fail by itself, and fleetctl wait for it. */
static fleet_status check_key(const run_job *j, int server)
{
    char path[PATH_MAX + 40];

    snprintf(path, sizeof path, "%s/server-%d.secret", j->keys, server);
    if (!*j->keys || access(path, R_OK) == 0)
        return FLEET_OK;
    return fl_fail(FLEET_ENOENT,
                   "there is no key %s for server %d: expected keys of all "
                   "servers that may join (fleetrun keys --server_num)",
                   path, server);
}

static fleet_status check_start(const watch *w, int server)
{
    if (w->phase != WATCH_RUN)
        return fl_fail(FLEET_ESTATE, "the job is about to end");
    if (w->job->options->replicas > 1)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "with --replicas 2 no server joins: lanes stay where "
                       "they are");
    return check_key(w->job, server);
}

/* One of that number may have ended before. */
static fleet_status start(watch *w, run_process *p)
{
    run_job *j = w->job;

    p->counts = false;
    p->port = j->options->start_port
                  ? j->options->start_port + j->n_local + p->index - j->n_server
                  : 0;
    p->restarts = (run_restarts){.n = p->restarts.n};
    FL_TRY(run_processes_take(j, p));
    FL_TRY(run_job_bind(p));
    FL_TRY(run_job_open_log(j, p));
    FL_TRY(run_journals_keep_joined(j, p));
    FL_TRY(run_job_start(j, p));
    p->restarts.started = watch_now_ms();
    watch_report("%s (pid %d) is started at %s:%d, to join the job; see %s",
                 run_process_name(p), (int)p->pid, p->host, p->port,
                 run_process_log(j, p));
    return FLEET_OK;
}

static fleet_status start_once(watch *w, run_process *p)
{
    fleet_status status;

    if (watch_lives(w, p))
        return FLEET_OK;
    FL_TRY(check_start(w, p->index));
    status = start(w, p);
    if (status != FLEET_OK)
        run_job_leave_port(p);
    return status;
}

static fleet_status look(const watch *w, const run_process *p)
{
    if (watch_lives(w, p))
        return FLEET_OK;
    if (!p->was_started)
        return fl_fail(FLEET_ESTATE, "%s is not this fleetrun's",
                       run_process_name(p));
    return fl_fail(FLEET_ECHILD, "%s %s; see %s", run_process_name(p),
                   watch_status_text(p->status), run_process_log(w->job, p));
}

static fleet_status no_request(const char *words)
{
    return fl_fail(FLEET_EINVAL, "\"%.40s\" is no request", words);
}

static fleet_status answer(watch *w, const char *words, run_process **p)
{
    char word[20];
    int server;
    bool joined;

    if (sscanf(words, "%19s %d", word, &server) != 2)
        return no_request(words);
    joined = strcmp(word, RUN_REQUEST_JOINED) == 0;
    *p = run_processes_joined(w->job, server);
    if (!*p)
        return no_place(w->job, server);
    if (strcmp(word, RUN_REQUEST_START) == 0)
        return start_once(w, *p);
    if (!joined && strcmp(word, RUN_REQUEST_LOOK) != 0)
        return no_request(words);
    FL_TRY(look(w, *p));
    (*p)->counts = (*p)->counts || joined;
    return FLEET_OK;
}

static void say_why_not(const run_process *p, fleet_status status,
                        char words[RUN_REQUEST_SIZE])
{
    const bool over = status == FLEET_ECHILD && p->status == 0;

    snprintf(words, RUN_REQUEST_SIZE, "%s%s", over ? RUN_REQUEST_OVER : "",
             fleet_last_error());
}

void watch_read_requests(watch *w)
{
    char words[RUN_REQUEST_SIZE];
    run_process *p = NULL;
    run_request r;

    while (run_requests_receive(w->job->requests, &r)) {
        fleet_status status = answer(w, r.words, &p);

        if (status == FLEET_OK)
            snprintf(words, sizeof words, RUN_REQUEST_DONE "%s:%d", p->host,
                     p->port);
        else
            say_why_not(p, status, words);
        run_requests_answer(w->job->requests, &r, words);
    }
}

bool watch_is_missed(watch *w, const run_process *p, const char *why)
{
    if (!p->joins || p->counts || p->status == 0)
        return true;
    if (w->reports)
        watch_report("%s, and had not joined the job, which goes on; see %s",
                     why, run_process_log(w->job, p));
    return false;
}
