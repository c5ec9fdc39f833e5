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

bool fl_place_is_gpu(const fl_place *at, fleet_place place)
{
    if (!at->gpu)
        return false;
    return place ? place > 0 || place == FLEET_ANY_GPU : at->on_gpu;
}

fl_place_text fl_place_print(fleet_place place)
{
    fl_place_text text = {""};

    if (place > 0)
        snprintf(text.chars, sizeof text.chars, "gpu:%d", place - 1);
    else if (place != 0)
        snprintf(text.chars, sizeof text.chars, "%s",
                 place == FLEET_CPU ? "cpu" : "gpu");
    return text;
}

/* The GPU that a place names, one user more. */
static fleet_status take_gpu(fl_place *p, fleet_place place)
{
    const fl_device_options o = {.strict_fp32 = p->strict_fp32};
    fl_gpu *gpu;

    if (p->gpu && p->gpu->d->ordinal == place - 1 &&
        p->gpu->options.strict_fp32 == o.strict_fp32)
        return FLEET_OK;
    FL_TRY(fl_gpu_open(place - 1, &o, &gpu));
    fl_gpu_close(p->gpu);
    p->gpu = gpu;
    return FLEET_OK;
}

/* All of it, or what the guards leave, goes to a place. A GPU that guards have
 * named is opened again if it computes otherwise. */
static fleet_status set_place(fl_place *p, fleet_place place,
                              const fleet_place_options *options)
{
    static const fleet_place_options none;
    const fleet_place_options *o = options ? options : &none;
    bool before = p->strict_fp32;
    fleet_status status = FLEET_OK;

    p->strict_fp32 = o->strict_fp32 != 0;
    if (place > 0 || p->gpu)
        status = take_gpu(p, place > 0 ? place : FLEET_GPU(p->gpu->d->ordinal));
    if (status != FLEET_OK) {
        p->strict_fp32 = before;
        return status;
    }
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
    p->strict_fp32 = program->strict_fp32;
    if (own == 0)
        return FLEET_OK;
    return set_place(p, own,
                     &(fleet_place_options){.allow_cpu = p->allow_cpu,
                                            .no_graphs = p->no_graphs,
                                            .strict_fp32 = p->strict_fp32});
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
    if (place > 0 && p->guard > 0 && p->guard != place)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "gpu:%d: what follows is guarded for gpu:%d, and a "
                       "program uses one",
                       place - 1, p->guard - 1);
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
    if (p->staged)
        return fl_fail(FLEET_ESTATE,
                       "fleet_program_place: fleet_minimize() has cut the "
                       "program into stages: place it before");
    if (place < FLEET_CPU)
        return fl_fail(FLEET_EINVAL,
                       "fleet_program_place: there is no place "
                       "%d",
                       place);
    FL_TRY(check_guards(p, place));
    return set_place(&p->place, place, options);
}

/* What a guard may say. */
static fleet_status parse_guard(const char *call, const char *device,
                                fleet_place *place)
{
    *place = 0;
    if (device && strcmp(device, "gpu") == 0)
        *place = FLEET_ANY_GPU;
    else if (device && fleet_place_parse(device, place) != FLEET_OK)
        return fl_fail(FLEET_EINVAL,
                       "%s: device \"%.40s\": expected \"cpu\", \"gpu\", "
                       "\"gpu:0\" or another one's number",
                       call, device);
    return FLEET_OK;
}

/* "gpu" opens none: it is the program's, if that has one. */
static fleet_status guard_of(fleet_program *p, const char *call,
                             const char *device, fleet_place *place)
{
    fl_place *at = &p->place;

    FL_TRY(parse_guard(call, device, place));
    if (*place > 0 && at->gpu && at->gpu->d->ordinal != *place - 1)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "%s: \"%s\": the program uses gpu:%d", call, device,
                       at->gpu->d->ordinal);
    if (*place > 0 && !at->gpu)
        FL_TRY(take_gpu(at, *place));
    return FLEET_OK;
}

fleet_status fleet_device_guard(fleet_program *p, const char *device)
{
    fleet_place place;

    FL_TRY(check_place(p, "fleet_device_guard"));
    FL_TRY(guard_of(p, "fleet_device_guard", device, &place));
    p->guard = place;
    return FLEET_OK;
}

/* Is it read by a node before that one? */
static bool is_read_before(const fleet_program *p, const fleet_var *v, int node)
{
    for (int i = 0; i < node; i++)
        for (int j = 0; j < p->node[i]->n_in; j++)
            if (p->node[i]->in[j] == v)
                return true;
    return false;
}

/* The node, and what the store keeps for it and for none before it. */
static void set_guard(const fleet_program *p, fl_node *n, fleet_place place)
{
    n->place = place;
    for (int j = 0; j < n->n_in; j++) {
        fleet_var *v = n->in[j];

        if (v && v->kind != FL_VAR_DATA && v->kind != FL_VAR_TEMP &&
            !is_read_before(p, v, n->id))
            v->place = place;
    }
}

fleet_status fleet_device_guard_from(fleet_program *p, const char *var,
                                     const char *device)
{
    const fleet_var *v = fleet_program_var(p, var);
    fleet_place place;

    FL_TRY(check_place(p, "fleet_device_guard_from"));
    if (!var || !v)
        return fl_fail(FLEET_ENOENT,
                       "fleet_device_guard_from: the program has no variable "
                       "\"%.200s\"",
                       var ? var : "(null)");
    if (!v->producer)
        return fl_fail(FLEET_EINVAL,
                       "fleet_device_guard_from: \"%.200s\" is not computed: "
                       "expected the result of an operator",
                       var);
    FL_TRY(guard_of(p, "fleet_device_guard_from", device, &place));
    for (size_t i = (size_t)v->producer->id; i < p->n_node; i++)
        set_guard(p, p->node[i], place);
    return FLEET_OK;
}
