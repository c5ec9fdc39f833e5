/* rendezvous_seal_absent.c - in place of rendezvous_seal.c where libsodium is
 * not: no seal is ever made, so nothing else of it is called. */
#include "collective/rendezvous/rendezvous_seal.h"

fleet_status fl_seal_create(fl_seal **s, const fl_rank_keys *keys, int size)
{
    (void)keys;
    (void)size;
    *s = NULL;
    return fl_fail(FLEET_EUNSUPPORTED,
                   "this build has no libsodium, which keys of ranks need; "
                   "FLEET_INSECURE=1 and \"fleetrun --insecure\" do without "
                   "keys");
}

void fl_seal_destroy(fl_seal *s)
{
    (void)s;
}

int fl_seal_rank(const fl_seal *s)
{
    (void)s;
    return -1;
}

bool fl_seal_begin(fl_seal *s, int rank, fl_seal_request *request)
{
    (void)s;
    (void)rank;
    (void)request;
    return false;
}

bool fl_seal_accept(fl_seal *s, const fl_seal_request *request,
                    fl_seal_answer *answer)
{
    (void)s;
    (void)request;
    (void)answer;
    return false;
}

bool fl_seal_finish(fl_seal *s, const fl_seal_answer *answer,
                    uint8_t head[FL_SEAL_HEAD])
{
    (void)s;
    (void)answer;
    (void)head;
    return false;
}

size_t fl_seal_wrap(fl_seal *s, const void *bytes, size_t n,
                    uint8_t record[FL_SEAL_RECORD])
{
    (void)s;
    (void)bytes;
    (void)n;
    (void)record;
    return 0;
}

uint8_t *fl_seal_room(fl_seal *s, size_t *missing)
{
    (void)s;
    *missing = 0;
    return NULL;
}

bool fl_seal_open(fl_seal *s, size_t came, char *bytes, size_t *n)
{
    (void)s;
    (void)came;
    (void)bytes;
    (void)n;
    return false;
}
