// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/whatif/control.h"

#include <fmt/format.h>

#include <QRegularExpression>
#include <algorithm>
#include <cmath>
#include <memory>

#include "models/hardware/profile.h"
#include "models/llm/model.h"
#include "sim/grid.h"
#include "sim/names.h"
#include "traces/common/error.h"
#include "traces/common/quantity.h"

namespace stallcast::gui {
namespace {

using sim::PredictRequest;
using Text = std::optional<std::string>;

constexpr double kReach = 16;         // a slider goes so many times below and above the default
constexpr double kLeastTop = 64;      // and up to here at least, for counts
constexpr double kBinaryDigits = 3;   // of a count on a slider
constexpr double kDecimalDigits = 2;  // of a quantity on a slider
constexpr double kLinearRange = 64;   // a range that ends below is linear

QString From(std::string_view text) {
  return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
}

double RoundTo(double value, double base, double digits) {
  if (value <= 0) return 0;
  const double unit = std::pow(base, std::floor(std::log(value) / std::log(base)) - digits + 1);
  return std::round(value / unit) * unit;
}

// Where a slider of a count reaches around its default, inside what is allowed.
void SetReach(Control& control, double fallback, double min, double max) {
  control.low = min;
  control.high = max;
  if (max <= kLinearRange) return;
  control.logarithmic = fallback > 0;
  control.high = std::min(max, std::max(fallback * kReach, kLeastTop));
  if (control.logarithmic)
    control.low = std::max(std::max(min, 1.0), std::floor(fallback / kReach));
}

Control Choice(const std::string& path, QString label, QString help, QStringList choices,
               std::string PredictRequest::*member, const std::string& fallback) {
  Control control{.path = path,
                  .group = QStringLiteral("Run"),
                  .label = std::move(label),
                  .help = std::move(help),
                  .kind = Control::Kind::kChoice,
                  .choices = std::move(choices),
                  .default_value = From(fallback)};
  control.read = [member, fallback](const PredictRequest& request) -> Text {
    if (request.*member == fallback) return std::nullopt;
    return request.*member;
  };
  control.write = [member, fallback](PredictRequest& request, const Text& text) {
    request.*member = text.value_or(fallback);
  };
  return control;
}

// A count of the request; 0 stands for `fallback`.
template <class T>
Control Count(const std::string& path, QString label, QString unit, QString help,
              T PredictRequest::*member, T unset, int64_t fallback, double max) {
  Control control{.path = path,
                  .group = QStringLiteral("Run"),
                  .label = std::move(label),
                  .unit = std::move(unit),
                  .help = std::move(help),
                  .default_value = QString::number(fallback),
                  .integer = true};
  control.parse = [path, max](const std::string& text) {
    const auto value = static_cast<double>(sim::ParseTokens(text, path));
    if (value > max) {
      throw UsageError(fmt::format("{} is out of range", text), path,
                       fmt::format("give 1 to {:.0f}", max));
    }
    return value;
  };
  control.format = [](double value) { return fmt::format("{:.0f}", value); };
  SetReach(control, static_cast<double>(fallback), 1, max);
  control.read = [member, unset](const PredictRequest& request) -> Text {
    if (request.*member == unset) return std::nullopt;
    return fmt::format("{}", request.*member);
  };
  control.write = [member, unset, parse = control.parse](PredictRequest& request,
                                                         const Text& text) {
    request.*member = text ? static_cast<T>(parse(*text)) : unset;
  };
  return control;
}

Control Host() {
  Control control{.path = "host",
                  .group = QStringLiteral("Run"),
                  .label = QStringLiteral("host"),
                  .help = QStringLiteral("Who issues it: plain CUDA calls, eager PyTorch or CUDA "
                                         "graphs; the public program's own is PyTorch"),
                  .kind = Control::Kind::kChoice,
                  .default_value = QStringLiteral("cpp")};
  for (const std::string_view name : plan::kHostNames) control.choices << From(name);
  control.read = [](const PredictRequest& request) -> Text {
    if (!request.host) return std::nullopt;
    return std::string(plan::Name(*request.host));
  };
  control.write = [](PredictRequest& request, const Text& text) {
    request.host.reset();
    if (text) request.host = plan::HostNamed(*text, "host");
  };
  return control;
}

Control AsRun() {
  Control control{.path = "as_run",
                  .group = QStringLiteral("Run"),
                  .label = QStringLiteral("as run"),
                  .help = QStringLiteral("The method's public program as it is written"),
                  .kind = Control::Kind::kFlag,
                  .default_value = QStringLiteral("off")};
  control.read = [](const PredictRequest& request) -> Text {
    if (!request.as_run) return std::nullopt;
    return "on";
  };
  control.write = [](PredictRequest& request, const Text& text) { request.as_run = text == "on"; };
  return control;
}

Control Parameter(const methods::ParamSpec& spec, const std::string& method, const QString& title,
                  const std::string& fallback) {
  using Type = methods::ParamSpec::Type;
  Control control{.path = "param." + spec.name,
                  .group = title,
                  .label = From(spec.name).replace('_', ' '),
                  .unit = From(spec.unit),
                  .help = From(spec.help),
                  .source = From(spec.source),
                  .default_value = From(fallback)};
  switch (spec.type) {
    case Type::kFlag:
      control.kind = Control::Kind::kFlag;
      break;
    case Type::kChoice:
      control.kind = Control::Kind::kChoice;
      for (const std::string& choice : spec.choices) control.choices << From(choice);
      break;
    case Type::kInteger:
    case Type::kReal:
      control.kind = Control::Kind::kNumber;
      control.integer = spec.type == Type::kInteger;
      control.parse = [spec, method](const std::string& text) {
        return methods::ParseNumber(spec, method, text);
      };
      control.format = [spec](double value) { return methods::WriteNumber(spec, value); };
      SetReach(control, control.parse(fallback), spec.min, spec.max);
      break;
    case Type::kText:
      control.kind = Control::Kind::kText;
      break;
  }
  control.read = [name = spec.name](const PredictRequest& request) -> Text {
    const auto found = request.params.find(name);
    if (found == request.params.end()) return std::nullopt;
    return found->second;
  };
  control.write = [name = spec.name](PredictRequest& request, const Text& text) {
    if (!text) {
      request.params.erase(name);
      return;
    }
    sim::CheckParameter(request.method, name, *text);
    request.params[name] = *text;
  };
  return control;
}

// Methods may have parameters of one name with other ranges.
bool Takes(const std::string& method, const std::string& parameter, const std::string& value) {
  try {
    sim::CheckParameter(method, parameter, value);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// How far a slider reaches whose value is 0 in the profile.
double ReachFromZero(Dimension dimension) {
  switch (dimension) {
    case Dimension::kTime:
      return 100e-6;
    case Dimension::kBytes:
      return 1 << 30;
    case Dimension::kRate:
      return 100e9;
    case Dimension::kFlops:
      return 1e15;
    case Dimension::kNumber:
      break;
  }
  return 1;
}

using SharedProfile = std::shared_ptr<const hardware::Profile>;

// A value of the profile by its path, where it stands among the controls left to the caller.
Control MachineValue(const std::string& path, Dimension dimension, std::string_view help,
                     double fallback, const SharedProfile& profile) {
  Control control{.path = "machine." + path,
                  .label = From(path),
                  .help = From(help),
                  .default_value = From(FormatQuantity(fallback, dimension))};
  if (const auto source = profile->sources.find(path); source != profile->sources.end()) {
    control.source = From(source->second);
  }
  control.parse = [dimension, path](const std::string& text) {
    return ParseQuantity(text, dimension, path);
  };
  control.format = [dimension](double value) { return FormatQuantity(value, dimension); };
  // Round, as what lies between them is.
  control.low = RoundTo(fallback / kReach, 10, kDecimalDigits);
  control.high =
      fallback > 0 ? RoundTo(fallback * kReach, 10, kDecimalDigits) : ReachFromZero(dimension);
  control.logarithmic = fallback > 0;
  control.read = [path](const PredictRequest& request) -> Text {
    for (const auto& [name, value] : request.machine_overrides) {
      if (name == path) return value;
    }
    return std::nullopt;
  };
  control.write = [path, profile](PredictRequest& request, const Text& text) {
    if (text) {
      hardware::Profile changed = *profile;
      hardware::Set(changed, path, *text);
    }
    auto& overrides = request.machine_overrides;
    const auto found = std::find_if(overrides.begin(), overrides.end(),
                                    [&](const auto& o) { return o.first == path; });
    if (!text) {
      if (found != overrides.end()) overrides.erase(found);
    } else if (found != overrides.end()) {
      found->second = *text;
    } else {
      overrides.emplace_back(path, *text);
    }
  };
  return control;
}

Control FieldControl(const hardware::ProfileField& field, const SharedProfile& profile) {
  const std::string path(field.path);
  Control control =
      MachineValue(path, field.dimension, field.help, field.In(std::as_const(*profile)), profile);
  control.group =
      QStringLiteral("Machine: ") + From(path.substr(0, path.find('.'))).replace('_', ' ');
  return control;
}

// host.recorded, on or off and among what is run.
Control Recorded(const hardware::ProfileField& field, const SharedProfile& profile) {
  Control control = FieldControl(field, profile);
  control.group = QStringLiteral("Run");
  control.label = QStringLiteral("recorded");
  control.help = QStringLiteral("As stallcast-gpu records it: calls and copies take longer");
  control.kind = Control::Kind::kFlag;
  control.default_value = QStringLiteral("off");
  control.read = [read = control.read](const PredictRequest& request) -> Text {
    const Text text = read(request);
    if (!text) return std::nullopt;
    return *text == "0" ? "off" : "on";
  };
  control.write = [write = control.write](PredictRequest& request, const Text& text) {
    write(request, text == "on" ? Text("1") : std::nullopt);
  };
  return control;
}

Control KernelControl(std::string_view kind, const hardware::KernelField& field,
                      const SharedProfile& profile) {
  const hardware::KernelFit& fit = profile->kernels.find(kind)->second;
  Control control = MachineValue(fmt::format("kernel.{}.{}", kind, field.path), field.dimension,
                                 field.help, fit.*field.member, profile);
  control.section = QStringLiteral("Machine: kernels");
  control.group = From(kind).replace('_', ' ');
  if (control.source.isEmpty()) control.source = From(fit.source);
  return control;
}

QStringList Names(const std::vector<std::string>& names) {
  QStringList list;
  for (const std::string& name : names) list << From(name);
  return list;
}

}  // namespace

QString Control::Value(const PredictRequest& request) const {
  const Text text = read(request);
  return text ? From(*text) : default_value;
}

double Control::Number(const PredictRequest& request) const {
  try {
    return parse(Value(request).toStdString());
  } catch (const Error&) {
    return parse(default_value.toStdString());
  }
}

double Control::AtShare(double share) const {
  share = std::clamp(share, 0.0, 1.0);
  const double value = logarithmic ? low * std::pow(high / low, share) : low + (high - low) * share;
  if (!logarithmic) return integer ? std::round(value) : RoundTo(value, 10, kDecimalDigits);
  return std::clamp(
      integer ? std::round(RoundTo(value, 2, kBinaryDigits)) : RoundTo(value, 10, kDecimalDigits),
      low, high);
}

double Control::ShareOf(double value) const {
  if (!(high > low)) return 0;
  const double share = logarithmic ? std::log(std::max(value, low) / low) / std::log(high / low)
                                   : (value - low) / (high - low);
  return std::clamp(share, 0.0, 1.0);
}

std::vector<Control> Controls(const PredictRequest& request,
                              const traces::proto::TraceInfo& trace) {
  const methods::NamedMethod named = methods::MakeMethod(request.method, {});
  const auto profile =
      std::make_shared<const hardware::Profile>(hardware::FindProfile(request.machine));
  const PredictRequest defaults;

  std::vector<Control> controls;
  controls.push_back(Choice("method", QStringLiteral("method"), From(named.info->summary),
                            Names(sim::MethodNames()), &PredictRequest::method, defaults.method));
  QStringList models = Names(llm::ModelNames());
  models.prepend({});
  controls.push_back(
      Choice("model", QStringLiteral("model"),
             QStringLiteral("Model predicted; layers and heads of the trace stand in "
                            "for those of a larger one"),
             models, &PredictRequest::model, {}));
  controls.back().choice_names = models;
  controls.back().files = QStringLiteral("Hugging Face config.json (*.json)");
  controls.back().choice_names[0] =
      QStringLiteral("the trace's (%1)").arg(From(trace.model().name()));
  controls.push_back(Choice("machine", QStringLiteral("machine"), From(profile->title),
                            Names(hardware::ProfileNames()), &PredictRequest::machine,
                            defaults.machine));
  controls.back().files = QStringLiteral("Machine profile (*.toml)");
  controls.push_back(Count<int32_t>("batch", QStringLiteral("batch"), QStringLiteral("sequences"),
                                    QStringLiteral("Sequences decoded together"),
                                    &PredictRequest::batch, 1, 1, 1e6));
  controls.push_back(Count<int64_t>("context", QStringLiteral("context"), QStringLiteral("tokens"),
                                    QStringLiteral("Tokens before the first step"),
                                    &PredictRequest::context, 0,
                                    std::max<int64_t>(1, trace.prompt_tokens()), 1 << 30));
  controls.push_back(
      Count<int32_t>("steps", QStringLiteral("steps"), {}, QStringLiteral("Decode steps predicted"),
                     &PredictRequest::steps, 0, std::max<int64_t>(1, trace.decode_steps()), 1e6));
  controls.push_back(Count<int32_t>("tp", QStringLiteral("tensor parallel"), QStringLiteral("GPUs"),
                                    QStringLiteral("GPUs that share the model; one is predicted"),
                                    &PredictRequest::tensor_parallel, 1, 1, 1024));
  controls.push_back(Host());
  controls.push_back(AsRun());
  const auto fields = hardware::ProfileFields();
  const auto recorded =
      std::ranges::find(fields, "host.recorded", &hardware::ProfileField::path);
  controls.push_back(Recorded(*recorded, profile));

  const auto preset = std::find_if(named.info->presets.begin(), named.info->presets.end(),
                                   [&](const auto& p) { return p.first == request.method; });
  for (const methods::ParamSpec& spec : named.info->params) {
    std::string fallback = spec.default_value;
    if (preset != named.info->presets.end()) {
      const auto value = preset->second.find(spec.name);
      if (value != preset->second.end()) fallback = value->second;
    }
    controls.push_back(Parameter(spec, request.method, From(named.info->title), fallback));
  }
  for (auto field = fields.begin(); field != fields.end(); ++field) {
    if (field != recorded) controls.push_back(FieldControl(*field, profile));
  }
  for (const std::string_view kind : hardware::KernelKinds()) {
    for (const hardware::KernelField& field : hardware::KernelFields()) {
      controls.push_back(KernelControl(kind, field, profile));
    }
  }
  return controls;
}

void ChangeMethod(PredictRequest& request, const std::string& method) {
  methods::MakeMethod(method, {});  // is there one?
  request.method = method;
  std::erase_if(request.params, [&](const auto& param) {
    return !sim::HasParameter(method, param.first) || !Takes(method, param.first, param.second);
  });
}

std::string Culprit(const Error& error, const std::vector<Control>& controls,
                    const std::string& last_changed) {
  const QString text = From(error.where()) + '\n' + From(error.problem());
  const auto named = [&](const Control& control) {
    const std::string name = control.path.substr(control.path.find('.') + 1);
    const QRegularExpression word(
        QStringLiteral("(?<![\\w.])%1(?![\\w.])").arg(QRegularExpression::escape(From(name))));
    return text.contains(word);
  };
  const auto last = std::find_if(controls.begin(), controls.end(),
                                 [&](const Control& c) { return c.path == last_changed; });
  if (last != controls.end() && named(*last)) return last_changed;
  for (const Control& control : controls) {
    // The method's own name stands before most errors of its parameters.
    if (control.path != "method" && named(control)) return control.path;
  }
  return last != controls.end() ? last_changed : std::string();
}

}  // namespace stallcast::gui
