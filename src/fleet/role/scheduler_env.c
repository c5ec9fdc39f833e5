/* scheduler_env.c - the variables of a scheduler, read and checked. */
#include "fleet/role/scheduler_env.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/hash.h"
#include "fleet/role/env.h"
#include "fleet/role/launcher_env.h"
#include "fleet/role/stage_role.h"

static const char *const names[] = {"MS_ROLE", "MS_SCHED_HOST", "MS_SCHED_PORT",
                                    "MS_SERVER_NUM", "MS_WORKER_NUM"};
enum { N_NAME = sizeof names / sizeof *names };

static const char *first_set(void)
{
    for (int i = 0; i < N_NAME; i++)
        if (fl_variable(names[i]))
            return names[i];
    return NULL;
}

/* What says the same in Paddle's words, or goes with its lists alone. */
static fleet_status check_others(const char *set)
{
    static const char *const paddle[] = {"PADDLE_PSERVERS_IP_PORT_LIST",
                                         "TRAINING_ROLE",
                                         "PADDLE_TRAINING_ROLE",
                                         "PADDLE_TRAINERS_NUM",
                                         "PADDLE_TRAINER_ID",
                                         "PADDLE_TRAINER_ENDPOINTS",
                                         "PADDLE_CURRENT_ENDPOINT",
                                         "PADDLE_MASTER"};
    const char *const alone[] = {"PADDLE_GLOBAL_SIZE", "FLEET_JOIN",
                                 "FLEET_LISTEN_FD", fl_stage_role_variable()};

    for (size_t i = 0; i < sizeof paddle / sizeof *paddle; i++)
        if (fl_variable(paddle[i]))
            return fl_fail(FLEET_EINVAL,
                           "%s is set, and %s, too: expected MindSpore's "
                           "variables of a scheduler, or Paddle's lists and "
                           "numbers, but not both",
                           set, paddle[i]);
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (alone[i] && fl_variable(alone[i]))
            return fl_fail(FLEET_EUNSUPPORTED,
                           "%s is set, and %s, too: with a scheduler there are "
                           "servers and workers alone",
                           set, alone[i]);
    return FLEET_OK;
}

static fleet_status read_role(fl_scheduler_env *e, const char *set)
{
    static const struct {
        const char *name;
        bool schedules;
        int role;
    } roles[] = {{"MS_SCHED", true, FL_SCHEDULED_SERVER},
                 {"MS_PSERVER", false, FL_SCHEDULED_SERVER},
                 {"MS_SERVER", false, FL_SCHEDULED_SERVER},
                 {"MS_WORKER", false, FL_SCHEDULED_WORKER}};
    static const char words[] = "MS_SCHED, MS_PSERVER, MS_SERVER or MS_WORKER";
    const char *text;

    FL_TRY(fl_variable_need("MS_ROLE", set, words, &text));
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(roles[i].name, text) == 0) {
            e->schedules = roles[i].schedules;
            e->role = roles[i].role;
            return FLEET_OK;
        }
    return fl_fail(FLEET_EUNSUPPORTED, "MS_ROLE is \"%.100s\": expected %s",
                   text, words);
}

static fleet_status read_number(const char *name, const char *set, int high,
                                int *out)
{
    char expected[48];
    const char *text;

    snprintf(expected, sizeof expected, "an integer from 1 to %d", high);
    FL_TRY(fl_variable_need(name, set, expected, &text));
    return fl_variable_read(name, text, 1, high, out);
}

static fleet_status read_address(fl_scheduler_env *e, const char *set)
{
    char endpoint[FL_ENDPOINT_SIZE];
    const char *host;
    int port, n;

    FL_TRY(fl_variable_need("MS_SCHED_HOST", set,
                            "the address of the scheduler", &host));
    FL_TRY(read_number("MS_SCHED_PORT", set, 65535, &port));
    n = snprintf(endpoint, sizeof endpoint,
                 strchr(host, ':') && *host != '[' ? "[%.200s]:%d"
                                                   : "%.200s:%d",
                 host, port);
    return fl_read_endpoint("MS_SCHED_HOST:MS_SCHED_PORT", endpoint, (size_t)n,
                            e->address);
}

static fleet_status read_id(fl_scheduler_env *e)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQ"
                                  "RSTUVWXYZ0123456789._-";
    const char *id = fl_variable("MS_NODE_ID");

    if (!id) {
        snprintf(e->id, sizeof e->id, "%016" PRIx64, fl_nonce());
        return FLEET_OK;
    }
    if (strlen(id) >= sizeof e->id || id[strspn(id, letters)])
        return fl_fail(FLEET_EINVAL,
                       "MS_NODE_ID is \"%.100s\": expected up to %d letters, "
                       "digits, dots, dashes and underscores",
                       id, FL_ROSTER_ID - 1);
    snprintf(e->id, sizeof e->id, "%s", id);
    return FLEET_OK;
}

fleet_status fl_scheduler_env_read(fl_scheduler_env *e, bool *found)
{
    const char *set = first_set();

    *e = (fl_scheduler_env){0};
    *found = set != NULL;
    if (!set)
        return FLEET_OK;
    FL_TRY(check_others(set));
    FL_TRY(read_role(e, set));
    FL_TRY(read_address(e, set));
    FL_TRY(read_number("MS_SERVER_NUM", set, FL_MOST_SERVER,
                       &e->num[FL_SCHEDULED_SERVER]));
    FL_TRY(read_number("MS_WORKER_NUM", set, FL_MOST_STREAM,
                       &e->num[FL_SCHEDULED_WORKER]));
    return read_id(e);
}

fleet_status fl_scheduler_env_alone(fleet_role *role, fl_text *servers,
                                    bool *found)
{
    const fl_rank first = {.index = 0, .local_index = -1};
    fl_scheduler_env e;

    *role = (fleet_role){.kind = FLEET_WORKER};
    FL_TRY(fl_scheduler_env_read(&e, found));
    if (!*found)
        return FLEET_OK;
    for (int i = 0; i < e.num[FL_SCHEDULED_SERVER]; i++)
        fl_text_add(servers, "%sinproc://server-%d", i > 0 ? "," : "", i);
    FL_TRY(servers->status);
    role->kind = e.role == FL_SCHEDULED_SERVER ? FLEET_SERVER : FLEET_WORKER;
    role->worker_num = e.num[FL_SCHEDULED_WORKER];
    role->server_endpoints = fl_text_chars(servers);
    role->job_id = fl_variable("PADDLE_JOB_ID");
    return fl_rank_gpu(&first, &role->gpu);
}
