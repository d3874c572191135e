// Binding an op by the kind of its work.
#pragma once

#include <string_view>
#include <utility>
#include <variant>

#include "kernels/executor/cache_binder.h"

namespace stallcast::kernels {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

/// Calls the one of `binds` that takes the op's kind of work, by const reference. None does:
/// CannotBind().
template <class... Binds>
OpWork BindByKind(std::string_view method, const plan::Op& op, Binds... binds) {
  return std::visit<OpWork>(
      Overloaded{std::move(binds)..., [&](const auto&) -> OpWork { CannotBind(method, op); }},
      op.work);
}

}  // namespace stallcast::kernels
