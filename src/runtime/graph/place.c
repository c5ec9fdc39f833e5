/* place.c - fleet_program_place() and guards: where a program's steps run. */
#include "runtime/graph/place.h"

#include <stdio.h>
#include <string.h>

#include "runtime/graph/program.h"

void fl_place_done(fl_place *p)
{
    fl_gpu_close(p->gpu);
    fl_map_done(&p->warned);
    *p = (fl_place){0};
}

/* The GPU that a place names, one user more. */
static fleet_status take_gpu(fl_place *p, fleet_place place,
                             const fl_device_options *o)
{
    fl_gpu *gpu;

    if (p->gpu && p->gpu->d->ordinal == place - 1 &&
        p->gpu->options.strict_fp32 == o->strict_fp32)
        return FLEET_OK;
    FL_TRY(fl_gpu_open(place - 1, o, &gpu));
    fl_gpu_close(p->gpu);
    p->gpu = gpu;
    return FLEET_OK;
}

/* All of it, or what the guards leave, goes to a place. */
static fleet_status set_place(fl_place *p, fleet_place place,
                              const fleet_place_options *options)
{
    static const fleet_place_options none;
    const fleet_place_options *o = options ? options : &none;
    fl_device_options device = {.strict_fp32 = o->strict_fp32 != 0};

    if (place > 0)
        FL_TRY(take_gpu(p, place, &device));
    p->on_gpu = place > 0;
    p->allow_cpu = o->allow_cpu != 0;
    p->no_graphs = o->no_graphs != 0;
    return FLEET_OK;
}

fleet_status fl_place_of(const fl_place *program, fleet_place own, fl_place *p)
{
    *p = (fl_place){0};
    if (own < 0)
        return own == FLEET_CPU
                   ? FLEET_OK
                   : fl_fail(FLEET_EINVAL, "place %d: there is none", own);
    if (own > 0 && program->gpu && program->gpu->d->ordinal != own - 1)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "an executor on gpu:%d: the program uses gpu:%d",
                       own - 1, program->gpu->d->ordinal);
    p->gpu = fl_gpu_share(program->gpu);
    p->on_gpu = program->on_gpu;
    p->allow_cpu = program->allow_cpu;
    p->no_graphs = program->no_graphs;
    if (own == 0)
        return FLEET_OK;
    return set_place(p, own,
                     &(fleet_place_options){
                         .allow_cpu = p->allow_cpu,
                         .no_graphs = p->no_graphs,
                         .strict_fp32 = p->gpu && p->gpu->options.strict_fp32});
}

/* --- fleet_program_place, guards ----------------------------------------- */

fleet_status fleet_place_parse(const char *device, fleet_place *place)
{
    int ordinal = -1, end = 0;

    if (!place)
        return fl_fail(FLEET_EINVAL, "fleet_place_parse: no place");
    if (device && strcmp(device, "cpu") == 0) {
        *place = FLEET_CPU;
        return FLEET_OK;
    }
    if (!device || sscanf(device, "gpu:%9d%n", &ordinal, &end) != 1 ||
        device[end] || ordinal < 0 || device[4] < '0')
        return fl_fail(FLEET_EINVAL,
                       "device \"%.40s\": expected \"cpu\" or \"gpu:0\"",
                       device ? device : "(null)");
    *place = FLEET_GPU(ordinal);
    return FLEET_OK;
}

static fleet_status check_place(const fleet_program *p, const char *call)
{
    if (!p)
        return fl_fail(FLEET_EINVAL, "%s: no program", call);
    if (p->sealed)
        return fl_fail(FLEET_ESTATE, "%s: the program has run", call);
    return FLEET_OK;
}

/* One that operators are guarded for. */
static fleet_status check_guards(const fleet_program *p, fleet_place place)
{
    for (size_t i = 0; i < p->n_node; i++) {
        int guarded = p->node[i]->place;

        if (place > 0 && guarded > 0 && guarded != place)
            return fl_fail(FLEET_EUNSUPPORTED,
                           "gpu:%d: \"%s\" is guarded for gpu:%d, and a "
                           "program uses one",
                           place - 1, p->node[i]->out[0]->name, guarded - 1);
    }
    return FLEET_OK;
}

fleet_status fleet_program_place(fleet_program *p, fleet_place place,
                                 const fleet_place_options *options)
{
    FL_TRY(check_place(p, "fleet_program_place"));
    if (place < FLEET_CPU)
        return fl_fail(FLEET_EINVAL,
                       "fleet_program_place: there is no place "
                       "%d",
                       place);
    FL_TRY(check_guards(p, place));
    return set_place(&p->place, place, options);
}

fleet_status fleet_device_guard(fleet_program *p, const char *device)
{
    fl_place *at;
    fleet_place place = 0;

    FL_TRY(check_place(p, "fleet_device_guard"));
    at = &p->place;
    if (device)
        FL_TRY(fleet_place_parse(device, &place));
    if (place > 0 && at->gpu && at->gpu->d->ordinal != place - 1)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "fleet_device_guard: \"%s\": the program uses gpu:%d",
                       device, at->gpu->d->ordinal);
    if (place > 0 && !at->gpu)
        FL_TRY(take_gpu(at, place, &(fl_device_options){0}));
    p->guard = place;
    return FLEET_OK;
}
