/* nccl_options.c - the handshake of this rank, from the options. */
#include "collective/nccl/nccl_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collective/nccl/nccl_internal.h"
#include "collective/nccl/nccl_lib.h"

enum { FIRST_THAT_SHARES = 23000 }; /* NCCL 2.30 */

static void read_host(char *host, size_t size)
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");

    if (!f)
        return; /* then two ranks on one GPU are not noticed */
    if (!fgets(host, (int)size, f))
        host[0] = 0;
    host[strcspn(host, "\n")] = 0;
    fclose(f);
}

/* Whether NCCL has been told that ranks may be on one GPU, and can do it. */
static bool ranks_share_gpus(void)
{
    const char *said = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    const fl_nccl_lib *lib;

    return said && strcmp(said, "1") == 0 &&
           fl_nccl_lib_open(&lib) == FLEET_OK &&
           lib->version >= FIRST_THAT_SHARES;
}

static fleet_status check_options(const fl_comm_options *o)
{
    if (o->size < 0 || o->rank < 0 || (o->size > 0 && o->rank >= o->size))
        return fl_fail(FLEET_EINVAL, "nccl: rank %d of %d ranks", o->rank,
                       o->size);
    if (o->job && strlen(o->job) >= FL_RENDEZVOUS_NAME)
        return fl_fail(FLEET_EINVAL,
                       "nccl: the job's name has %zu characters: expected up "
                       "to %d",
                       strlen(o->job), FL_RENDEZVOUS_NAME - 1);
    return FLEET_OK;
}

fleet_status fl_nccl_open(const fl_comm_options *o, fl_comm **comm)
{
    fl_rendezvous_options r = {.own = {.magic = FL_RENDEZVOUS_MAGIC,
                                       .version = FL_RENDEZVOUS_VERSION,
                                       .rank = o->rank,
                                       .size = o->size ? o->size : 1,
                                       .ordered = o->ordered},
                               .address = o->address,
                               .listener = o->listener,
                               .connect_ms = o->connect_ms ? o->connect_ms
                                                           : o->deadline_ms,
                               .deadline_ms = o->deadline_ms,
                               .keys = o->keys,
                               .log = o->log};
    int result;

    *comm = NULL;
    FL_TRY(check_options(o));
    if (r.own.size == 1 && !r.address)
        r.address = "tcp://127.0.0.1:0";
    snprintf(r.own.job, sizeof r.own.job, "%s", o->job ? o->job : "");
    read_host(r.own.host, sizeof r.own.host);
    result = fl_cu_bus(o->device, r.own.bus);
    if (result)
        return fl_fail(FLEET_ENODEVICE, "nccl: rank %d has no device %d: %s",
                       o->rank, o->device, fl_cu_text(result));
    if (ranks_share_gpus())
        r.own.bus[0] = 0; /* it does not count */
    return fl_nccl_join(&r, o, comm);
}
