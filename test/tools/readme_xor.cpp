// readme_xor.cpp - the README's program in C++17, which has no compound literals.
#include <cstdint>
#include <cstdio>

#include <fleet/fleet.h>

int main()
{
    float in[] = {0, 0, 0, 1, 1, 0, 1, 1}, loss = 0;
    int64_t out[] = {0, 1, 1, 0}, dims[] = {4, 2}, one[] = {4, 1};
    int64_t x_shape[] = {-1, 2}, y_shape[] = {-1, 1};
    fleet_feed feed[] = {{"x", FLEET_FLOAT32, in, dims, 2, nullptr},
                         {"y", FLEET_INT64, out, one, 2, nullptr}};
    fleet_fc_options tanh16{};
    fleet_distributed_strategy strategy = fleet_distributed_strategy_default();
    fleet *handle = nullptr;

    tanh16.activation = FLEET_TANH;
    fleet_init(&handle, nullptr);
    fleet_program *p = fleet_program_create(handle);
    fleet_var *x = fleet_data(p, "x", FLEET_FLOAT32, x_shape, 2);
    fleet_var *y = fleet_data(p, "y", FLEET_INT64, y_shape, 2);
    fleet_var *h = fleet_fc(p, x, 16, &tanh16);
    fleet_var *logits = fleet_fc(p, h, 2, nullptr);
    fleet_var *cost =
        fleet_mean(p, fleet_softmax_with_cross_entropy(p, logits, y, nullptr));
    fleet_optimizer *adam = fleet_adam(handle, 0.02f, nullptr);
    fleet_status s = fleet_minimize(
        fleet_distributed_optimizer(handle, adam, &strategy), cost);
    fleet_executor *executor =
        s == FLEET_OK ? fleet_executor_create(p, nullptr) : nullptr;
    fleet_fetch fetch{};
    fetch.var = cost;
    fetch.data = &loss;
    fetch.size = sizeof loss;
    for (int step = 0; executor && s == FLEET_OK && step < 300; step++)
        s = fleet_executor_run(executor, feed, 2, &fetch, 1);
    std::printf("xor: loss %.3f %s\n", static_cast<double>(loss),
                s ? fleet_last_error() : "");
    fleet_executor_destroy(executor);
    fleet_destroy(handle);
    return loss > 0.1f || s != FLEET_OK;
}
