/* rank_keys_kit.c - see rank_keys_kit.h. */
#define SUITE rank_keys_kit
#include "rank_keys_kit.h"
#include "test.h"

#include <unistd.h>

#include "base/memory.h"
#include "collective/rendezvous/rendezvous_seal.h"

bool rank_keys_can(void)
{
    uint8_t of[1][FL_RANK_KEY] = {{0}};
    const fl_rank_keys none = {.of = of};
    fl_seal *s;
    bool can = fl_seal_create(&s, &none, 1) == FLEET_OK;

    fl_seal_destroy(s);
    return can;
}

void rank_keys_need(void)
{
    if (!rank_keys_can())
        test_skip("%s", fleet_last_error());
}

const char *rank_keys_make(const char *name, int size)
{
    const char *folder = test_path(name);

    if (access(folder, F_OK) != 0)
        CHECK_OK(fl_keys_make(folder, 0, size));
    return folder;
}

void rank_keys_read(fl_rank_keys *k, const char *folder, int rank, int size)
{
    fl_keys *all;

    CHECK_OK(fl_keys_read(&all, folder, false, rank));
    k->of = fl_alloc_array((size_t)size, sizeof *k->of);
    CHECK(k->of != NULL);
    fl_keys_bytes(all->secret, k->secret);
    for (int i = 0; i < size; i++)
        fl_keys_bytes(all->known[FL_ROLE_WORKER][i], k->of[i]);
    fl_keys_destroy(all);
}

void rank_keys_done(fl_rank_keys *k)
{
    fl_free(k->of);
}
