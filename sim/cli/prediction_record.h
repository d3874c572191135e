// A prediction as one flat JSON object: the same whether `predict` has just made it or a sweep's
// file holds it.
#pragma once

#include <string>

#include "sim/cli/output.h"
#include "sim/predict.h"
#include "sim/result_store.h"

namespace stallcast::cli {

Json RecordOf(const sim::Prediction& prediction, const sim::ResultStore::Trace& trace);
/// With null for what a failed point has not got.
Json RecordOf(const sim::ResultStore::Rows& points, size_t row);

/// A number or text of a stored point; NaN and empty where it has none.
double NumberOf(const sim::ResultStore::Value& value);
std::string TextOf(const sim::ResultStore::Value& value);

}  // namespace stallcast::cli
