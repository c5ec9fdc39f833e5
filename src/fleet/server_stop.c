/* server_stop.c - the servers of this process, and what ends them. */
#include "fleet/server_stop.h"

#include <sched.h>
#include <stdatomic.h>

enum { MOST_RUNNING = 32 };
static _Atomic(fl_server *) running[MOST_RUNNING];

static bool add_running(fl_server *s)
{
    for (int i = 0; i < MOST_RUNNING; i++) {
        fl_server *none = NULL;

        if (atomic_compare_exchange_strong(&running[i], &none, s))
            return true;
    }
    return false;
}

/* Calls that may hold a server which is to be stopped. */
static atomic_int stopping;

/* Calls that have stopped all servers that ran; why the last one did. */
static atomic_uint stops;
static _Atomic(const char *) stop_why;

/* Returns when no call touches the server any more. A lock would not do:
 * stop_all() may run in a signal handler. No such call waits, so that this does
 * not wait for long. */
static void remove_running(fl_server *s)
{
    for (int i = 0; i < MOST_RUNNING; i++) {
        fl_server *one = s;

        atomic_compare_exchange_strong(&running[i], &one, NULL);
    }
    while (atomic_load(&stopping) > 0)
        sched_yield();
}

static void stop_all(const char *why)
{
    fl_server *s[MOST_RUNNING];
    int n = 0;

    atomic_fetch_add(&stopping, 1);
    for (int i = 0; i < MOST_RUNNING; i++) {
        s[n] = atomic_load(&running[i]);
        n += s[n] != NULL;
    }
    fl_server_stop(s, n, why);
    atomic_store(&stop_why, why);
    atomic_fetch_add(&stops, 1);
    atomic_fetch_sub(&stopping, 1);
}

void fl_server_stop_one(fl_server *s, const char *why)
{
    atomic_fetch_add(&stopping, 1);
    fl_server_stop(&s, 1, why);
    atomic_fetch_sub(&stopping, 1);
}

unsigned fl_server_stops(const char **why)
{
    unsigned n = atomic_load(&stops);

    *why = atomic_load(&stop_why);
    return n;
}

void fleet_stop_server(void)
{
    fleet_stop_server_for(NULL);
}

void fleet_stop_server_for(const char *why)
{
    stop_all(why ? why : "fleet_stop_server() was called");
}

static void on_sigterm(int signal_number)
{
    (void)signal_number;
    stop_all("it was sent SIGTERM");
}

/* Only over SIG_DFL: a host's own handler stays. */
static bool catch_sigterm(struct sigaction *before)
{
    struct sigaction ours = {.sa_handler = on_sigterm, .sa_flags = SA_RESTART};

    if (sigaction(SIGTERM, NULL, before) != 0 || before->sa_handler != SIG_DFL)
        return false;
    sigemptyset(&ours.sa_mask);
    return sigaction(SIGTERM, &ours, NULL) == 0;
}

static fleet_status too_many(void)
{
    return fl_fail(FLEET_EUNSUPPORTED,
                   "fleet_run_server: %d servers run in this process already",
                   (int)MOST_RUNNING);
}

fleet_status fl_server_pair_put(fl_server_pair *s, int which, fl_server *server)
{
    if (s->server[which])
        remove_running(s->server[which]);
    s->server[which] = NULL;
    if (server && !add_running(server))
        return too_many();
    s->server[which] = server;
    return FLEET_OK;
}

fleet_status fl_server_pair_begin(fl_server_pair *s, bool sigterm)
{
    for (int i = 0; i < 2; i++)
        if (s->server[i] && !add_running(s->server[i])) {
            if (i > 0)
                remove_running(s->server[0]);
            return too_many();
        }
    s->catches = sigterm && catch_sigterm(&s->before);
    return FLEET_OK;
}

void fl_server_pair_end(fl_server_pair *s)
{
    if (s->catches)
        sigaction(SIGTERM, &s->before, NULL);
    for (int i = 0; i < 2; i++)
        if (s->server[i])
            remove_running(s->server[i]);
}
