// gloo_peer.cc - see gloo_peer.h: tcp over the loopback, as PyTorch uses it.
#include "gloo_peer.h"

#include <map>
#include <memory>

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

using halving = gloo::AllreduceHalvingDoubling<float>;

struct gloo_peer {
    std::shared_ptr<gloo::rendezvous::Context> context;
    std::map<std::pair<float *, size_t>, std::unique_ptr<halving>> made;
};

extern "C" const char *const gloo_algorithms[] = {"ring", "bcube",
                                                  "halving doubling", nullptr};

gloo_peer *gloo_open(int rank, int size, const char *folder)
{
    auto *g = new gloo_peer;
    gloo::transport::tcp::attr where;

    where.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(where);
    gloo::rendezvous::FileStore store(folder);
    g->context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    g->context->connectFullMesh(store, device);
    return g;
}

static void sum_new(gloo_peer *g, bool is_ring, float *x, size_t n)
{
    gloo::AllreduceOptions o(g->context);

    o.setAlgorithm(is_ring ? gloo::AllreduceOptions::Algorithm::RING
                           : gloo::AllreduceOptions::Algorithm::BCUBE);
    o.setReduceFunction(
        static_cast<void (*)(void *, const void *, const void *, size_t)>(
            &gloo::sum<float>));
    o.setOutput(x, n);
    gloo::allreduce(o);
}

void gloo_sum(gloo_peer *g, int algorithm, float *x, size_t n)
{
    if (algorithm < 2) {
        sum_new(g, algorithm == 0, x, n);
        return;
    }
    auto &made = g->made[{x, n}];
    if (!made)
        made.reset(new halving(g->context, {x}, static_cast<int>(n)));
    made->run();
}
