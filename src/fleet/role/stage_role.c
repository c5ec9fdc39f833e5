/* stage_role.c - Fleet's variables of a job of stages, each compared with the
 * other variables. */
#include "fleet/role/stage_role.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "fleet/role/env.h"
#include "ps/worker/handshake.h"

const char fl_stage_role_list[] = "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST";

static const char next_list[] = "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST";
static const char previous_list[] =
    "PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST";
static const char counts_list[] = "PADDLE_STAGE_TRAINERS_NUM";
static const char workers_list[] = "PADDLE_TRAINER_ENDPOINTS";

static bool is_heter(const char *role)
{
    return role && strcmp(role, "HETER_TRAINER") == 0;
}

const char *fl_stage_role_variable(void)
{
    static const char *const names[] = {fl_stage_role_list, next_list,
                                        previous_list, counts_list};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (fl_variable(names[i]))
            return names[i];
    return is_heter(fl_variable("TRAINING_ROLE")) ? "TRAINING_ROLE" : NULL;
}

static fleet_status need_number(const char *name, int low, int high, int *out)
{
    char expected[64];
    const char *text;

    snprintf(expected, sizeof expected, "an integer from %d to %d", low, high);
    FL_TRY(fl_variable_need(name, fl_stage_role_list, expected, &text));
    return fl_variable_read(name, text, low, high, out);
}

/* --- how many in each stage ----------------------------------------------- */

/* Fleet's launcher writes a list of Python's, "[2, 1]". */
static fleet_status read_counts(fl_stage_role *s, const char *text)
{
    const char *at = text + (*text == '[');
    int n = 0;

    for (;; at++) {
        size_t length;
        int64_t count = 0;

        at += strspn(at, " ");
        length = strspn(at, "0123456789");
        if (n == s->n || !fl_read_digits(at, length, FL_MOST_STREAM, &count) ||
            count == 0)
            break;
        s->num[n++] = (int)count;
        at += length;
        at += strspn(at, " ");
        if (*at != ',')
            break;
    }
    if (n == s->n && strcmp(at, *text == '[' ? "]" : "") == 0)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "%s is \"%.200s\": expected the processes of each of "
                   "STAGE_NUM %d stages, [2, 1] for instance",
                   counts_list, text, s->n);
}

static fleet_status check_counts(const fl_stage_role *s, int n_worker)
{
    int n = 0;

    for (int i = 1; i < s->n; i++)
        n += s->num[i];
    if (s->num[0] != n_worker)
        return fl_fail(FLEET_EINVAL,
                       "%s has %d in the first stage: expected %d, as "
                       "PADDLE_TRAINERS_NUM says",
                       counts_list, s->num[0], n_worker);
    if (n == s->n_heter)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "%s has %d heter trainers: expected %d, as many as %s has",
                   counts_list, n, s->n_heter, fl_stage_role_list);
}

int fl_stage_role_first(const fl_stage_role *s, int stage)
{
    int first = 0;

    for (int i = 1; i < stage; i++)
        first += s->num[i];
    return first;
}

/* --- neighbours ----------------------------------------------------------- */

static fleet_status not_the_stage(const fl_stage_role *s, const char *name,
                                  const char *list, int stage)
{
    fl_address *own = s->heter + fl_stage_role_first(s, stage);
    fleet_status status;
    fl_text want = {0};

    for (int i = 0; i < s->num[stage]; i++)
        fl_text_add(&want, "%s%s", i ? "," : "", fl_address_text(own[i]));
    status = fl_fail(FLEET_EINVAL,
                     "%s is \"%.300s\": expected \"%.300s\", which are stage "
                     "%d in %s",
                     name, list, fl_text_chars(&want), stage + 1,
                     fl_stage_role_list);
    fl_text_done(&want);
    return status;
}

/* The list of a neighbour has the heter workers of that stage, in the order of
 * all. */
static fleet_status check_stage(const fl_stage_role *s, const char *name,
                                const char *list, int stage)
{
    fl_address *own = s->heter + fl_stage_role_first(s, stage);
    fleet_status status;
    fl_address *got;
    int n;

    FL_TRY(FL_NEW(&got, FL_MOST_STREAM * sizeof *got));
    status = fl_read_endpoints(name, list, "trainers", FL_MOST_STREAM, got, &n);
    for (int i = 0;
         status == FLEET_OK && i < (n > s->num[stage] ? n : s->num[stage]); i++)
        if (i >= n || i >= s->num[stage] || strcmp(got[i], own[i]) != 0)
            status = not_the_stage(s, name, list, stage);
    fl_free(got);
    return status;
}

static fleet_status check_none(const char *name, const char *which)
{
    const char *list = fl_variable(name);

    if (!list)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "%s is \"%.300s\": expected none, as STAGE_ID says the %s "
                   "stage",
                   name, list, which);
}

static fleet_status check_next(const fl_stage_role *s)
{
    const char *list;

    if (s->own + 1 == s->n)
        return check_none(next_list, "last");
    FL_TRY(fl_variable_need(next_list, fl_stage_role_list,
                            "the trainers of the next stage", &list));
    return check_stage(s, next_list, list, s->own + 1);
}

/* Before the first heter workers are the workers. */
static fleet_status check_previous(const fl_stage_role *s)
{
    const char *workers = fl_variable(workers_list), *list;

    if (s->own == 0)
        return check_none(previous_list, "first");
    FL_TRY(fl_variable_need(previous_list, fl_stage_role_list,
                            "the trainers of the stage before", &list));
    if (s->own > 1)
        return check_stage(s, previous_list, list, s->own - 1);
    if (!workers || strcmp(workers, list) == 0)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "%s is \"%.300s\": expected \"%.300s\", as %s is",
                   previous_list, list, workers, workers_list);
}

/* --- all of it ------------------------------------------------------------ */

static fleet_status read_device(fl_stage_role *s)
{
    static const char name[] = "HETER_DEVICE_TYPE";
    const char *text;

    FL_TRY(fl_variable_need(name, fl_stage_role_list, "cpu or gpu", &text));
    s->on_gpu = strcmp(text, "gpu") == 0;
    if (s->on_gpu || strcmp(text, "cpu") == 0)
        return FLEET_OK;
    return fl_fail(FLEET_EUNSUPPORTED,
                   "%s is \"%.100s\": expected cpu or gpu; this version has no "
                   "other devices",
                   name, text);
}

/* Fleet's launcher gives a server the list of heter workers, and no more. */
static fleet_status read_own(fl_stage_role *s, const char *role, int n_worker)
{
    const int low = is_heter(role) ? 2 : 1;
    const char *counts;
    int id;

    FL_TRY(need_number("STAGE_NUM", 2, FL_MOST_STAGE, &s->n));
    FL_TRY(fl_variable_need(counts_list, fl_stage_role_list,
                            "the processes of each stage, [2, 1] for instance",
                            &counts));
    FL_TRY(read_counts(s, counts));
    FL_TRY(check_counts(s, n_worker));
    FL_TRY(need_number("STAGE_ID", low, low == 1 ? 1 : s->n, &id));
    s->own = id - 1;
    FL_TRY(check_next(s));
    FL_TRY(check_previous(s));
    return low == 2 ? read_device(s) : FLEET_OK;
}

fleet_status fl_stage_role_read(fl_stage_role *s, const char *role,
                                int n_worker)
{
    const char *list = fl_variable(fl_stage_role_list);
    const char *other = fl_stage_role_variable();

    if (!other)
        return FLEET_OK;
    FL_TRY(fl_variable_need(fl_stage_role_list, other,
                            "the heter trainers' ip:port, with commas", &list));
    FL_TRY(FL_NEW(&s->heter, FL_MOST_STREAM * sizeof *s->heter));
    s->endpoints = fl_strdup(list);
    if (!s->endpoints)
        return FLEET_ENOMEM;
    FL_TRY(fl_read_endpoints(fl_stage_role_list, list, "heter trainers",
                             FL_MOST_STREAM - n_worker, s->heter, &s->n_heter));
    return strcmp(role, "PSERVER") == 0 ? FLEET_OK
                                        : read_own(s, role, n_worker);
}

void fl_stage_role_done(fl_stage_role *s)
{
    fl_free(s->heter);
    fl_free(s->endpoints);
    *s = (fl_stage_role){0};
}

fleet_status fl_stage_role_find_self(const fl_stage_role *s, int *index)
{
    const int first = fl_stage_role_first(s, s->own);
    const char *text;

    FL_TRY(fl_variable_need("POD_IP", fl_stage_role_list,
                            "the address of this heter trainer", &text));
    FL_TRY(fl_variable_need("PADDLE_PORT", fl_stage_role_list,
                            "an integer from 1 to 65535", &text));
    FL_TRY(fl_find_own_endpoint(fl_stage_role_list, s->endpoints, s->heter,
                                s->n_heter, index));
    if (*index >= first && *index < first + s->num[s->own])
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "POD_IP:PADDLE_PORT is \"%s\": expected one of stage %d, as "
                   "STAGE_ID says: numbers %d to %d of %s, and this is %d",
                   fl_address_text(s->heter[*index]), s->own + 1, first,
                   first + s->num[s->own] - 1, fl_stage_role_list, *index);
}
