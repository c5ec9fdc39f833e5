/* step_parts.c - steps of several parts, under the lock. */
#include "ps/stage/step_parts.h"

#include "ps/worker/worker_internal.h"

fleet_status fl_worker_io_end_step(fl_worker_io *l)
{
    FL_TRY(fl_worker_io_lock(l));
    return fl_worker_io_unlock(l, fl_worker_end_step(&l->worker));
}

fleet_status fl_worker_io_part_again(fl_worker_io *l, uint64_t step, int lane,
                                     const fl_packet *p)
{
    FL_TRY(fl_worker_io_lock(l));
    return fl_worker_io_unlock(l,
                               fl_worker_part_again(&l->worker, step, lane, p));
}

fleet_status fl_worker_io_stand(fl_worker_io *l, uint64_t step, int64_t updates)
{
    FL_TRY(fl_worker_io_lock(l));
    fl_worker_stand(&l->worker, step, updates);
    return fl_worker_io_unlock(l, FLEET_OK);
}

fleet_status fl_worker_io_end_part_again(fl_worker_io *l, uint64_t step,
                                         const fl_update_settings *settings)
{
    FL_TRY(fl_worker_io_lock(l));
    fl_worker_end_part_again(&l->worker, step, settings);
    return fl_worker_io_unlock(l, FLEET_OK);
}

uint64_t fl_worker_io_steps(const fl_worker_io *l)
{
    return l->worker.step;
}

const fl_trail_packets *fl_worker_io_last_part(const fl_worker_io *l,
                                               fl_update_settings *settings)
{
    *settings = l->worker.part_settings;
    return fl_worker_last_part(&l->worker);
}

const char *fl_worker_io_trail(const fl_worker_io *l, uint64_t *nonce)
{
    *nonce = l->trail ? fl_trail_nonce(l->trail) : 0;
    return l->trail ? fl_trail_folder(l->trail) : NULL;
}
