/* options_heter.c - how many heter workers each stage of a job has, and on
 * which devices. Fleet separates stages by semicolons. */
#include "options.h"

#include <stdio.h>
#include <string.h>

enum { MOST_HETER = 4096 };

/* The next entry of a list of stages; NULL: there is none. */
static const char *next_stage(const char *at, size_t length)
{
    return at[length] ? at + length + 1 : NULL;
}

static fleet_status add_stage(run_options *o, const char *flag, int n)
{
    if (o->n_stage == RUN_MOST_STAGE)
        return fl_fail(FLEET_EINVAL,
                       "%s: more than %d stages beside the workers'", flag,
                       RUN_MOST_STAGE - 1);
    if (n > MOST_HETER - o->n_heter)
        return fl_fail(FLEET_EINVAL, "%s: more than %d heter workers", flag,
                       MOST_HETER);
    o->stage[o->n_stage++] = n;
    o->n_heter += n;
    return FLEET_OK;
}

static fleet_status read_numbers(run_options *o)
{
    static const char flag[] = "--heter_worker_num";

    for (const char *at = o->heter_numbers; at;) {
        const size_t length = strcspn(at, ";");
        char text[16];
        int n;

        snprintf(text, sizeof text, "%.*s", (int)length, at);
        FL_TRY(run_options_integer(flag, text, 1, MOST_HETER, &n));
        FL_TRY(add_stage(o, flag, n));
        at = next_stage(at, length);
    }
    return FLEET_OK;
}

static fleet_status count_listed(run_options *o)
{
    for (const char *at = o->heter_workers; at;) {
        const size_t length = strcspn(at, ";");
        int n = 1;

        for (size_t i = 0; i < length; i++)
            n += at[i] == ',';
        FL_TRY(add_stage(o, "--heter_workers", n));
        at = next_stage(at, length);
    }
    return FLEET_OK;
}

static fleet_status read_devices(run_options *o)
{
    int stage = 1;

    for (const char *at = o->heter_devices; at; stage++) {
        const size_t length = strcspn(at, ";");
        const bool gpu = length == 3 && memcmp(at, "gpu", 3) == 0;

        if (!gpu && !(length == 3 && memcmp(at, "cpu", 3) == 0))
            return fl_fail(FLEET_EINVAL,
                           "--heter_devices: expected cpu or gpu for each "
                           "stage, got \"%.*s\"",
                           (int)length, at);
        if (stage < o->n_stage)
            o->stage_on_gpu[stage] = gpu;
        at = next_stage(at, length);
    }
    if (!o->heter_devices || stage == o->n_stage)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "--heter_devices has %d stages, but the heter workers have "
                   "%d",
                   stage - 1, o->n_stage - 1);
}

static fleet_status check_job(const run_options *o)
{
    if (!o->servers && o->n_server == 0)
        return fl_fail(FLEET_EINVAL,
                       "heter workers are for jobs with servers: give "
                       "--server_num or --servers");
    if (o->collective)
        return fl_fail(FLEET_EINVAL, "heter workers are beside workers that "
                                     "are no ranks: give no --collective, nor "
                                     "a flag that implies it");
    return FLEET_OK;
}

fleet_status run_options_check_heter(run_options *o)
{
    o->n_stage = 1;
    if (o->heter_numbers && o->heter_workers)
        return fl_fail(FLEET_EINVAL,
                       "--heter_workers and --heter_worker_num: give one");
    FL_TRY(read_numbers(o));
    FL_TRY(count_listed(o));
    if (o->n_heter > 0)
        FL_TRY(check_job(o));
    return read_devices(o);
}
