// SPDX-License-Identifier: GPL-3.0-or-later
// From the state of the view to what is on the screen.
#include <QElapsedTimer>
#include <QPainter>
#include <algorithm>
#include <cmath>

#include "gui/timeline/legend.h"
#include "gui/timeline/view_impl.h"
#include "gui/timeline/words.h"

namespace stallcast::gui {
namespace {

// Logical pixels.
constexpr int kSearchHeight = 32, kLeastHeader = 106, kMostHeader = 200;

}  // namespace

void TimelineView::Impl::PlaceSearch() {
  const int found = found_->text().isEmpty() ? 0 : found_->sizeHint().width() + 8;
  const int width = std::max(40, view_->width() - 8 - found);
  search_->setGeometry(4, 3, width, kSearchHeight - 6);
  found_->setGeometry(4 + width + 6, 3, std::max(0, found - 6), kSearchHeight - 6);
}

SceneInput TimelineView::Impl::Input() const {
  SceneInput input;
  input.pair = pair_.get();
  input.ghost = ghost_.get();
  input.ghost_name = ghost_name_;
  input.alignment = &alignment_;
  input.visible = state_.visible;
  input.layout = &layout_;
  input.scale = scale();
  input.color = state_.color;
  for (size_t s = 0; s < 2; ++s) input.masks[s] = masks_[s].all() ? nullptr : &masks_[s];
  input.measure = fonts_.get();
  input.notes = &state_.notes;
  for (int r = 0; r < traces::kRoles; ++r) {
    const auto role = static_cast<traces::Role>(r);
    if (state_.filter == FilterOf(role)) input.chosen_role = role;
  }
  return input;
}

void TimelineView::Impl::EnsureScene() {
  if (fonts_ == nullptr || fonts_scale_ != scale()) {
    fonts_scale_ = scale();
    fonts_ = std::make_unique<Fonts>(view_->font(), fonts_scale_);
    scene_valid_ = false;
  }
  if (scene_valid_) return;
  scene_valid_ = true;
  LayoutInput layout;
  layout.pair = pair_.get();
  layout.ghost = ghost_.get();
  layout.pins = state_.pins;
  layout.folded = state_.folded;
  layout.hidden = state_.hidden;
  layout.scroll = scroll_;
  layout.width = static_cast<int>(std::lround(view_->width() * scale()));
  layout.height = static_cast<int>(std::lround(view_->height() * scale()));
  layout.scale = scale();
  layout.top = search_->isVisible() ? static_cast<int>(std::lround(kSearchHeight * scale())) : 0;
  int names = static_cast<int>(kLeastHeader * scale());
  for (Side side : kSides) {
    if (!pair_ || !pair_->model(side)) continue;
    const TimelineModel& model = *pair_->model(side);
    for (size_t l = 0; l < model.lanes().size(); ++l) {
      if (model.lanes()[l].rows == 0) continue;
      names =
          std::max(names, fonts_->Width(Text(model.timeline().lanes[l].name), TextStyle::kNormal) +
                              static_cast<int>((kFoldMark + 10) * scale()));
    }
  }
  layout.header_width = std::min(names, static_cast<int>(kMostHeader * scale()));
  if (pair_) {
    layout.legend_height = MakeLegend(*pair_, state_.color, pair_->both() || ghost_, layout.width,
                                      layout.scale, *fonts_)
                               .height;
  }
  layout_ = Arrange(layout);
  for (size_t s = 0; s < 2; ++s) {
    if (scroll_[s] <= layout_.scroll_limit[s]) continue;
    scroll_[s] = layout_.scroll_limit[s];
    layout.scroll = scroll_;
    layout_ = Arrange(layout);
  }
  const QSize size(layout.width, layout.height);
  if (base_.size() != size) base_ = QImage(size, QImage::Format_RGB32);
  if (!pair_ || alignment_.whole.length().count() == 0 || base_.isNull()) {
    scene_ = {};
    return;
  }
  if (!minimap_valid_ || minimap_width_ != layout_.chart_width()) {
    minimap_width_ = layout_.chart_width();
    minimap_ = MinimapBars(*pair_, alignment_, minimap_width_);
    minimap_valid_ = true;
  }
  // The least range depends on the width, which may have grown.
  state_.visible = Fit(state_.visible);
  scene_ = Draw(Input(), minimap_);
  const bool dark = view_->palette().color(QPalette::Window).lightness() < 128;
  FramePainter(dark ? Theme::Dark() : Theme::Light(), *fonts_, scale()).Paint(scene_.frame, base_);
  UpdateArea();
}

void TimelineView::Impl::Paint(QPaintEvent*) {
  QElapsedTimer timer;
  timer.start();
  EnsureScene();
  HoverWhatIsUnderTheCursor();
  const bool dark = view_->palette().color(QPalette::Window).lightness() < 128;
  const Theme& theme = dark ? Theme::Dark() : Theme::Light();
  QPainter painter(view_);
  if (!pair_ || alignment_.whole.length().count() == 0) {
    painter.fillRect(view_->rect(), theme.window);
    painter.setPen(theme.muted);
    painter.drawText(view_->rect(), Qt::AlignCenter | Qt::TextWordWrap, tr("No timeline is open"));
    return;
  }
  base_.setDevicePixelRatio(1);
  painter.scale(1 / scale(), 1 / scale());
  painter.drawImage(0, 0, base_);
  const SceneInput scene = Input();
  OverlayInput overlay;
  overlay.scene = &scene;
  overlay.base = &scene_.frame;
  overlay.hover = drag_ == Drag::kNone ? hover_ : Hit{};
  overlay.cursor_x = cursor_.x();
  overlay.cursor_y = cursor_.y();
  overlay.selected = selected_;
  overlay.area = area_box_;
  overlay.sums = sums_;
  overlay.measure = measure_;
  overlay.all_waits = state_.all_waits;
  FramePainter(theme, *fonts_, scale()).PaintOver(DrawOverlay(overlay), painter);
  if (search_->isVisible()) {
    painter.fillRect(0, 0, base_.width(), static_cast<int>(kSearchHeight * scale()), theme.panel);
  }
  painter.end();
  Q_EMIT view_->Painted(timer.nsecsElapsed());
}

}  // namespace stallcast::gui
