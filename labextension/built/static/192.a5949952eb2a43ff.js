"use strict";(self.rspackChunkfakegpu_lab=self.rspackChunkfakegpu_lab||[]).push([[192],{757(e,a,r){var t=r(601),o=r.n(t),i=r(314),n=(r.n(i))()(o());n.push([e.id,'.uplot, .uplot *, .uplot *::before, .uplot *::after {box-sizing: border-box;}.uplot {font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Noto Sans", sans-serif, "Apple Color Emoji", "Segoe UI Emoji", "Segoe UI Symbol", "Noto Color Emoji";line-height: 1.5;width: min-content;}.u-title {text-align: center;font-size: 18px;font-weight: bold;}.u-wrap {position: relative;user-select: none;}.u-over, .u-under {position: absolute;}.u-under {overflow: hidden;}.uplot canvas {display: block;position: relative;width: 100%;height: 100%;}.u-axis {position: absolute;}.u-legend {font-size: 14px;margin: auto;text-align: center;}.u-inline {display: block;}.u-inline * {display: inline-block;}.u-inline tr {margin-right: 16px;}.u-legend th {font-weight: 600;}.u-legend th > * {vertical-align: middle;display: inline-block;}.u-legend .u-marker {width: 1em;height: 1em;margin-right: 4px;background-clip: padding-box !important;}.u-inline.u-live th::after {content: ":";vertical-align: middle;}.u-inline:not(.u-live) .u-value {display: none;}.u-series > * {padding: 4px;}.u-series th {cursor: pointer;}.u-legend .u-off > * {opacity: 0.3;}.u-select {background: rgba(0,0,0,0.07);position: absolute;pointer-events: none;}.u-cursor-x, .u-cursor-y {position: absolute;left: 0;top: 0;pointer-events: none;will-change: transform;}.u-hz .u-cursor-x, .u-vt .u-cursor-y {height: 100%;border-right: 1px dashed #607D8B;}.u-hz .u-cursor-y, .u-vt .u-cursor-x {width: 100%;border-bottom: 1px dashed #607D8B;}.u-cursor-pt {position: absolute;top: 0;left: 0;border-radius: 50%;border: 0 solid;pointer-events: none;will-change: transform;/*this has to be !important since we set inline "background" shorthand */background-clip: padding-box !important;}.u-axis.u-off, .u-select.u-off, .u-cursor-x.u-off, .u-cursor-y.u-off, .u-cursor-pt.u-off {display: none;}',""]),r.d(a,{},{A:n})},475(e,a,r){var t=r(601),o=r.n(t),i=r(314),n=(r.n(i))()(o());n.push([e.id,`.fg-Gpus {
  box-sizing: border-box;
  min-width: 160px;
  padding: 8px 12px 16px;
  overflow: hidden auto;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size1);
}

.fg-Head-line {
  display: flex;
  align-items: baseline;
  gap: 8px;
}

.fg-Spec {
  color: var(--jp-ui-font-color2);
  font-family: var(--jp-code-font-family);
  font-size: var(--jp-code-font-size);
}

.fg-Buttons {
  display: flex;
  flex-flow: row wrap;
  gap: 8px;
  margin: 8px 0;
}

.fg-Button.jp-mod-styled {
  margin: 0;
}

.fg-Empty p {
  margin: 8px 0;
  line-height: 1.4;
}

.fg-Why:empty,
.fg-Remedy:empty,
.fg-Spec:empty {
  display: none;
}

.fg-Remedy {
  color: var(--jp-ui-font-color2);
}

.fg-Status {
  display: flex;
  align-items: center;
}

.fg-Status.fg-mod-empty {
  display: none;
}

.fg-Status-button {
  padding: 0 4px;
  border: none;
  background: none;
  color: inherit;
  cursor: pointer;
  font: inherit;
  font-variant-numeric: tabular-nums;
}

.fg-Status-button:hover,
.fg-Status-button:focus-visible {
  background: var(--jp-layout-color2);
}

.fg-Status.fg-mod-full .fg-Status-button {
  color: var(--fg-full);
  font-weight: 600;
}

.fg-Hardware {
  display: grid;
  gap: 8px;
  width: min(460px, 80vw);
}

.fg-Hardware-list {
  height: 220px;
  margin: 0;
  padding: 2px;
  overflow: hidden auto;
  border: 1px solid var(--jp-border-color1);
  background: var(--jp-input-background);
  list-style: none;
}

.fg-Hardware-list:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
}

.fg-Hardware-list li {
  display: grid;
  grid-template-columns: 1fr 1fr auto;
  gap: 8px;
  padding: 3px 8px;
  cursor: default;
  font-size: var(--jp-ui-font-size1);
}

.fg-Hardware-list li[aria-selected='true'] {
  background: var(--jp-brand-color1);
  color: var(--jp-ui-inverse-font-color1);
}

.fg-Hardware-list li:hover:not([aria-selected='true']) {
  background: var(--jp-layout-color2);
}

.fg-Hardware-id {
  font-family: var(--jp-code-font-family);
}

.fg-Hardware-size {
  font-variant-numeric: tabular-nums;
}

.fg-Hardware-row {
  display: grid;
  grid-template-columns: 1fr 2fr;
  gap: 12px;
}

.fg-Hardware-row label {
  display: grid;
  gap: 4px;
}

.fg-Hardware-says {
  color: var(--jp-ui-font-color2);
}

.fg-Hardware-line {
  padding: 6px 8px;
  background: var(--jp-layout-color2);
}
`,""]),r.d(a,{},{A:n})},814(e,a,r){var t=r(601),o=r.n(t),i=r(314),n=(r.n(i))()(o());n.push([e.id,`.fg-Dashboard {
  box-sizing: border-box;
  min-width: 0;
  padding: 12px 16px 24px;
  overflow: hidden auto;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  container-type: inline-size;
  font-size: var(--jp-ui-font-size1);
}

.fg-Dashboard .fg-Title {
  flex: 0 1 auto;
  margin: 0;
}

.fg-Dashboard .fg-Empty {
  max-width: 60ch;
}

.fg-Dashboard-head {
  display: flex;
  position: sticky;
  z-index: 5;
  top: -12px;
  flex-flow: row wrap;
  align-items: center;
  gap: 6px 10px;
  margin: -12px -16px 0;
  padding: 12px 16px 8px;
  background: var(--jp-layout-color1);
}

.fg-Dashboard-head .fg-Busy {
  flex: 1;
  font-style: normal;
  font-variant-numeric: tabular-nums;
}
`,""]),r.d(a,{},{A:n})},21(e,a,r){var t=r(601),o=r.n(t),i=r(314),n=(r.n(i))()(o());n.push([e.id,`.fg-Lessons {
  box-sizing: border-box;
  min-width: 220px;
  padding: 8px 12px 16px;
  overflow: hidden auto;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size1);

  --fg-passed: #0a7d5a;
  --fg-failed: #b3541e;
}

[data-jp-theme-light='false'] .fg-Lessons {
  --fg-passed: #3fc79a;
  --fg-failed: #ff9e6b;
}

.fg-Lessons [hidden] {
  display: none;
}

.fg-Lessons .fg-Title {
  margin: 4px 0;
  white-space: normal;
}

.fg-Here {
  margin-bottom: 16px;
  padding-bottom: 8px;
  border-bottom: 1px solid var(--jp-border-color1);
}

.fg-Exercises,
.fg-Lesson-list {
  margin: 8px 0;
  padding: 0;
  list-style: none;
}

.fg-Lesson-track {
  margin: 16px 0 0;
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size1);
  font-weight: 600;
}

.fg-Exercise {
  display: flex;
  gap: 8px;
  padding: 6px 0;
}

.fg-Exercise-mark {
  flex: none;
  width: 1.2em;
  color: var(--jp-ui-font-color2);
  font-weight: 600;
  text-align: center;
}

.fg-mod-passed .fg-Exercise-mark {
  color: var(--fg-passed);
}

.fg-mod-failed .fg-Exercise-mark {
  color: var(--fg-failed);
}

.fg-Exercise-body {
  flex: 1;
  min-width: 0;
}

.fg-Link {
  padding: 0;
  border: none;
  background: none;
  color: inherit;
  cursor: pointer;
  font: inherit;
  font-weight: 600;
  text-align: left;
}

.fg-Link:hover {
  text-decoration: underline;
}

.fg-Link:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: 2px;
}

.fg-Lesson-facts {
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
  font-variant-numeric: tabular-nums;
}

.fg-Row {
  display: flex;
  flex-flow: row wrap;
  gap: 6px;
  margin-top: 4px;
}

.fg-Small:disabled {
  color: var(--jp-ui-font-color2);
  cursor: default;
}

.fg-Hints {
  margin: 6px 0 0;
  padding: 6px 8px 6px 24px;
  background: var(--jp-layout-color2);
  line-height: 1.4;
}

.fg-Lesson {
  margin-bottom: 8px;
  padding: 8px 10px;
  border: 1px solid var(--jp-border-color2);
  border-radius: 4px;
}

.fg-Lesson-title {
  margin: 0;
  font-size: inherit;
  font-weight: 600;
}

.fg-Lesson-goal {
  margin: 2px 0 4px;
  line-height: 1.35;
}

.fg-Progress {
  width: 100%;
  height: 6px;
  margin: 4px 0 0;
  accent-color: var(--fg-passed);
}
`,""]),r.d(a,{},{A:n})},164(e,a,r){var t=r(601),o=r.n(t),i=r(314),n=(r.n(i))()(o());n.push([e.id,`.fg-Recording {
  box-sizing: border-box;
  padding: 12px 16px 24px;
  overflow: auto;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
}

.fg-Recording-status {
  max-width: 75ch;
  padding: 8px 0;
  font-size: var(--jp-content-font-size1);
}

.fg-Recording summary {
  padding: 4px 0;
  cursor: pointer;
}
`,""]),r.d(a,{},{A:n})},40(e,a,r){var t=r(601),o=r.n(t),i=r(314),n=(r.n(i))()(o());n.push([e.id,`/* What the sidebar, the dashboard and the panel draw with. The colours of figures are Okabe and Ito's, which people of every
   kind of colour vision tell apart (jfly.uni-koeln.de/color, 2008); paper and ink are JupyterLab's, where it is there. */
.fg-Views,
.fg-Lessons,
.fg-Status,
.fg-Hardware {
  --fg-memory: #0072b2;
  --fg-utilisation: var(--fg-ink);
  --fg-full: #b3261e;
  --fg-parameters: #0072b2;
  --fg-optimizer-state: #e69f00;
  --fg-workspace: #009e73;
  --fg-gradients: #d55e00;
  --fg-activations: #56b4e9;
  --fg-inputs: #cc79a7;
  --fg-other: #9a9a9a;
  --fg-reserved: #51565e;
  --fg-line-0: #0072b2;
  --fg-line-1: #d55e00;
  --fg-line-2: #009e73;
  --fg-line-3: #cc79a7;
  --fg-line-4: #e69f00;
  --fg-line-5: #56b4e9;
  --fg-line-6: #6a3d9a;
  --fg-line-7: #5b6270;
  --fg-kind-matmul: #0072b2;
  --fg-kind-convolution: #56b4e9;
  --fg-kind-attention: #d55e00;
  --fg-kind-elementwise: #e69f00;
  --fg-kind-reduction: #009e73;
  --fg-kind-normalization: #cc79a7;
  --fg-kind-optimizer: #b8a800;
  --fg-kind-python: #3f8f89;
  --fg-kind-dispatch: #8fb3b0;
  --fg-kind-launch: #6f7785;
  --fg-kind-host-waits: #a3a9b4;
  --fg-kind-host-works: #4f7a8c;
  --fg-kind-forward: #7fa8c9;
  --fg-kind-backward: #cf9a72;
  --fg-kind-copy: #8c6239;
  --fg-kind-collective: #8f63bf;
  --fg-kind-waits-for-ranks: #b39dd0;
  --fg-kind-earlier-work: #d9dce1;
  --fg-kind-other: #8a8a8a;
  --fg-phase-forward: #7fa8c9;
  --fg-phase-backward: #cf9a72;
  --fg-phase-optimizer: #a48bc0;
  --fg-paper: var(--jp-layout-color1, #fff);
  --fg-raised: var(--jp-layout-color2, #f0f1f4);
  --fg-sunken: var(--jp-layout-color3, #dfe2e7);
  --fg-ink: var(--jp-ui-font-color1, #1c1e21);
  --fg-soft: var(--jp-ui-font-color2, #51565e);
  --fg-line: var(--jp-border-color1, #b9bec6);
  --fg-grid: var(--jp-border-color2, #dfe2e7);
  --fg-accent: var(--jp-brand-color1, #0060a8);
}

/* Where a page has no theme of JupyterLab's, and where another one is asked for. */
.fg-Views.fg-mod-own {
  --fg-paper: #fff;
  --fg-raised: #f0f1f4;
  --fg-sunken: #dfe2e7;
  --fg-ink: #1c1e21;
  --fg-soft: #51565e;
  --fg-line: #b9bec6;
  --fg-grid: #dfe2e7;
  --fg-accent: #0060a8;
}

[data-jp-theme-light='false'] .fg-Views:not([data-theme]),
[data-jp-theme-light='false'] .fg-Lessons,
[data-jp-theme-light='false'] .fg-Status,
[data-jp-theme-light='false'] .fg-Hardware,
.fg-Views[data-theme='dark'] {
  --fg-memory: #56b4e9;
  --fg-full: #ff8a80;
  --fg-parameters: #3d9bdc;
  --fg-workspace: #22b892;
  --fg-gradients: #f0793a;
  --fg-activations: #8fd0f5;
  --fg-inputs: #dd9cc0;
  --fg-other: #8d9199;
  --fg-reserved: #b4bac4;
  --fg-line-0: #3d9bdc;
  --fg-line-1: #f0793a;
  --fg-line-2: #22b892;
  --fg-line-3: #dd9cc0;
  --fg-line-5: #8fd0f5;
  --fg-line-6: #b497d6;
  --fg-line-7: #b4bac6;
  --fg-kind-matmul: #3d9bdc;
  --fg-kind-earlier-work: #40454e;
}

.fg-Views.fg-mod-own[data-theme='dark'] {
  --fg-paper: #16181c;
  --fg-raised: #22252b;
  --fg-sunken: #31353d;
  --fg-ink: #eceef1;
  --fg-soft: #b4bac4;
  --fg-line: #5a616d;
  --fg-grid: #343a43;
  --fg-accent: #7cc4ff;
}

.fg-Views [hidden] {
  display: none !important;
}

.fg-Title {
  flex: 1;
  min-width: 0;
  margin: 4px 0 0;
  overflow: hidden;
  font-size: 1.15em;
  font-weight: 600;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.fg-Busy {
  color: var(--fg-soft);
  font-style: italic;
}

.fg-Error {
  margin: 8px 0;
  padding: 6px 8px;
  border-left: 3px solid var(--fg-full);
  background: var(--fg-raised);
  overflow-wrap: anywhere;
}

.fg-Error:not(:hover, :focus) {
  padding-bottom: 0;
  border-bottom: 6px solid transparent; /* the padding would show the next line's upper half */
  display: -webkit-box;
  overflow: hidden;
  -webkit-box-orient: vertical;
  -webkit-line-clamp: 4;
}

.fg-Error:empty {
  display: none;
}

.fg-Cards {
  display: grid;
  gap: 8px;
}

.fg-Card {
  padding: 8px 10px;
  border: 1px solid var(--fg-line);
  border-radius: 4px;
  background: var(--fg-paper);
  contain-intrinsic-size: auto 190px;
  content-visibility: auto;
  cursor: pointer;
}

.fg-Card:hover {
  border-color: var(--fg-accent);
}

.fg-Card.fg-mod-full {
  border-color: var(--fg-full);
}

.fg-Card-head {
  display: flex;
  flex-wrap: wrap;
  align-items: baseline;
  justify-content: space-between;
  gap: 0 8px;
  margin: 0;
  font-size: inherit;
  font-weight: 600;
}

.fg-Card-name {
  padding: 0;
  border: none;
  background: none;
  color: inherit;
  cursor: pointer;
  font: inherit;
  text-align: left;
  white-space: pre-wrap;
}

.fg-Card.fg-mod-chosen {
  border-color: var(--fg-accent);
  box-shadow: inset 0 0 0 1px var(--fg-accent);
}

.fg-Card-name:focus-visible {
  outline: 2px solid var(--fg-accent);
  outline-offset: 2px;
}

.fg-Card-state {
  color: var(--fg-full);
  font-size: 0.86em;
  font-weight: 600;
  white-space: nowrap;
}

.fg-Meter {
  display: flex;
  position: relative;
  height: 8px;
  margin: 6px 0 3px;
  overflow: hidden;
  border-radius: 3px;
  background: var(--fg-raised);
  box-shadow: inset 0 0 0 1px var(--fg-sunken);
}

.fg-Meter-part {
  flex: none;
  height: 100%;
  background: var(--fg-swatch);
}

.fg-Meter-kept {
  flex: none;
  height: 100%;
  background: repeating-linear-gradient(135deg, var(--fg-soft) 0 1px, transparent 1px 5px);
}

.fg-Meter-context {
  flex: none;
  height: 100%;
  margin-left: auto;
  background: repeating-linear-gradient(90deg, var(--fg-reserved) 0 2px, transparent 2px 4px);
}

.fg-Meter-peak {
  width: 2px;
  height: 100%;
  background: var(--fg-ink);
}

.fg-Meter > .fg-Meter-peak {
  position: absolute;
  top: 0;
}

.fg-Meter-key {
  display: flex;
  flex-wrap: wrap;
  gap: 0 12px;
  margin: 0 0 6px;
  padding: 0;
  color: var(--fg-soft);
  font-size: 0.86em;
  font-variant-numeric: tabular-nums;
  list-style: none;
}

.fg-Meter-key li {
  white-space: nowrap;
}

.fg-Meter-swatch {
  display: inline-block;
  width: 10px;
  height: 8px;
  margin-right: 4px;
}

/* In the key nothing is to be pushed to the right. */
.fg-Meter-swatch.fg-Meter-context {
  margin-left: 0;
}

.fg-Meter-swatch.fg-Meter-kept {
  background-color: var(--fg-raised);
}

.fg-Meter-swatch.fg-Meter-peak {
  width: 2px;
}

.fg-Card-line {
  display: flex;
  flex-wrap: wrap;
  justify-content: space-between;
  gap: 2px 8px;
  font-variant-numeric: tabular-nums;
}

.fg-Card-memory {
  border-bottom: 2px solid var(--fg-memory);
}

.fg-Card-used {
  border-bottom: 2px solid var(--fg-utilisation);
}

.fg-Spark {
  display: grid;
  margin: 6px 0;
  color: var(--fg-soft);
  font-size: 0.86em;
  font-variant-numeric: tabular-nums;
}

.fg-Spark-scale {
  order: -1;
}

.fg-Sparkline {
  display: block;
  width: 100%;
  height: 36px;
  border-top: 1px dotted var(--fg-line);
  border-bottom: 1px solid var(--fg-line);
}

.fg-Spark-time {
  display: flex;
  justify-content: space-between;
}

.fg-Facts {
  display: grid;
  grid-template-columns: auto 1fr;
  gap: 1px 12px;
  margin: 0;
  color: var(--fg-soft);
  font-size: 0.86em;
}

.fg-Facts dd {
  margin: 0;
  color: var(--fg-ink);
  font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere;
  text-align: right;
}

.fg-Heading {
  margin: 16px 0 4px;
  font-size: inherit;
  font-weight: 600;
}

.fg-List {
  margin: 0;
  padding-left: 16px;
  line-height: 1.4;
}

.fg-Small,
.fg-Select {
  padding: 2px 10px;
  border: 1px solid var(--fg-line);
  border-radius: 4px;
  background: var(--fg-paper);
  color: var(--fg-ink);
  cursor: pointer;
  font: inherit;
}

.fg-Small:hover,
.fg-Select:hover {
  background: var(--fg-raised);
}

.fg-Small[aria-pressed='true'] {
  border-color: var(--fg-accent);
  background: var(--fg-accent);
  color: var(--fg-paper);
}

.fg-Small:focus-visible,
.fg-Select:focus-visible,
.fg-Error:focus-visible,
.fg-Chart-host:focus-visible,
.fg-Lanes:focus-visible,
.fg-Bands:focus-visible,
.fg-Table-scroll:focus-visible {
  outline: 2px solid var(--fg-accent);
  outline-offset: 1px;
}

.fg-Parts {
  display: grid;
  grid-template-columns: minmax(0, 1fr);
  gap: 12px;
}

.fg-Section-body {
  container-type: inline-size;
}

.fg-Part {
  contain-intrinsic-size: auto 240px;
  content-visibility: auto;
  min-width: 0;
  padding: 8px 12px 10px;
  border: 1px solid var(--fg-line);
  border-radius: 4px;
}

@container (inline-size >= 900px) {
  .fg-Parts {
    grid-template-columns: repeat(2, minmax(0, 1fr));
  }

  .fg-Part[data-part='memory'],
  .fg-Part[data-part='allocations'],
  .fg-Part[data-part='busy'],
  .fg-Part[data-part='timeline'] {
    grid-column: 1 / -1;
  }
}

.fg-Section-head {
  display: flex;
  flex-wrap: wrap;
  align-items: baseline;
  gap: 2px 10px;
  margin-bottom: 6px;
}

.fg-Section-title {
  margin: 0;
  font-size: inherit;
  font-weight: 600;
}

.fg-Section-note {
  flex: 1;
  min-width: 12em;
  color: var(--fg-soft);
  font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere;
}

.fg-Section-head .fg-Small {
  padding: 0 6px;
  font-size: 0.86em;
}

.fg-Section-why {
  margin: 4px 0;
  color: var(--fg-soft);
}

.fg-Chart .u-select {
  background: var(--fg-accent);
  opacity: 0.2;
}

.fg-Chart .u-cursor-x {
  border-right: 1px solid var(--fg-ink);
}

.fg-Legend-line {
  display: flex;
  flex-wrap: wrap;
  gap: 2px 10px;
  margin-top: 4px;
  font-variant-numeric: tabular-nums;
}

.fg-Legend-when {
  flex: none;
  min-width: 3em;
  color: var(--fg-soft);
}

.fg-Legend {
  display: flex;
  flex-flow: row wrap;
  gap: 2px 16px;
  margin: 0;
  padding: 0;
  font-variant-numeric: tabular-nums;
  list-style: none;
}

.fg-Legend li {
  white-space: nowrap;
}

.fg-Legend-name {
  color: var(--fg-soft);
}

.fg-Legend-line .fg-Legend {
  flex: 1 1 0;
  min-width: 60%;
}

.fg-Legend-shaded {
  flex-basis: 100%;
  margin-left: calc(3em + 10px);
  color: var(--fg-soft);

  --fg-swatch: var(--fg-raised);
}

.fg-Legend-shaded .fg-Swatch {
  border: 1px solid var(--fg-grid);
}

.fg-Swatch {
  display: inline-block;
  width: 10px;
  height: 10px;
  margin-right: 5px;
  border-radius: 2px;
  background: var(--fg-swatch);
}

.fg-Swatch.fg-mod-hatched {
  background: repeating-linear-gradient(135deg, #555 0 1px, var(--fg-swatch) 1px 4px);
}

.fg-Swatch.fg-mod-dashed {
  width: 20px;
  height: 0;
  border-top: 2px dashed var(--fg-swatch);
  border-radius: 0;
  background: none;
  vertical-align: 4px;
}

.fg-Swatch.fg-mod-outline {
  height: 0;
  border-top: 2px solid var(--fg-swatch);
  border-radius: 0;
  background: none;
  vertical-align: 4px;
}

.fg-Lanes-frame {
  position: relative;
}

.fg-Lanes-scroll {
  max-height: 420px;
  overflow: hidden auto;
}

.fg-Lanes,
.fg-Bands {
  display: block;
  width: 100%;
  cursor: crosshair;
  touch-action: pan-y;
}

.fg-Allocations .fg-Legend {
  margin-top: 6px;
}

.fg-Allocations-said {
  display: grid;
  align-content: start;
  min-height: 7em;
  margin-top: 6px;
  padding: 4px 8px;
  border-left: 3px solid var(--fg-line);
  font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere;
}

.fg-Table-title {
  margin: 8px 0 0;
  font-size: inherit;
  font-weight: 600;
}

.fg-Tip {
  position: absolute;
  z-index: 10;
  max-width: min(60ch, 100%);
  padding: 3px 8px;
  border: 1px solid var(--fg-line);
  border-radius: 3px;
  background: var(--fg-raised);
  overflow-wrap: anywhere;
  pointer-events: none;
}

.fg-Table-scroll {
  margin-top: 8px;
  overflow: auto;
}

.fg-Table {
  border-collapse: collapse;
  font-variant-numeric: tabular-nums;
}

.fg-Table th,
.fg-Table td {
  padding: 2px 10px;
  text-align: right;
  white-space: nowrap;
}

.fg-Table th,
.fg-mod-groups td:last-child {
  white-space: normal;
}

.fg-Table thead th {
  vertical-align: bottom;
}

.fg-mod-groups td:last-child {
  min-width: 7em;
}

.fg-Table th {
  font-weight: 400;
  color: var(--fg-soft);
}

.fg-Table tr > :first-child {
  padding-left: 0;
  text-align: left;
}

.fg-Table tbody tr > * {
  border-top: 1px solid var(--fg-grid);
}

/* A bar below the figure: beside or behind it, it would be hard to read. */
.fg-mod-peak td:nth-child(3) {
  background: linear-gradient(var(--fg-swatch, var(--fg-soft)) 0 0) no-repeat left bottom /
    calc(var(--fg-shade, 0) * 100%) 3px;
}

.fg-Table .fg-mod-coloured > th::before {
  display: inline-block;
  width: 10px;
  height: 10px;
  margin-right: 5px;
  border-radius: 2px;
  background: var(--fg-swatch);
  content: '';
}

.fg-Table.fg-mod-peak thead th {
  white-space: nowrap;
}

.fg-Table.fg-mod-peak tr > :nth-child(n + 5) {
  min-width: 6em;
  padding-right: 0;
  text-align: left;
  white-space: normal;
  overflow-wrap: anywhere;
}

.fg-mod-matrix td {
  background: color-mix(in srgb, var(--fg-memory) calc(var(--fg-shade, 0) * 100%), transparent);
}

.fg-mod-ranks td:last-child {
  min-width: 160px;
  background: linear-gradient(var(--fg-kind-waits-for-ranks) 0 0) no-repeat left bottom /
    calc(var(--fg-shade, 0) * 100%) 3px;
}

/* Where a table is wider than its place, each row is a block: its name, and below it what it says, line by line. */
@container (inline-size < 480px) {
  .fg-mod-peak td:nth-child(3) {
    background: none;
  }

  .fg-Table,
  .fg-Table tbody,
  .fg-Table tr,
  .fg-Table tbody th {
    display: block;
  }

  .fg-Table thead {
    position: absolute;
    width: 1px;
    height: 1px;
    overflow: hidden;
    clip-path: inset(50%);
  }

  .fg-Table tbody tr {
    padding: 4px 0;
    border-top: 1px solid var(--fg-grid);
  }

  .fg-Table tbody tr > * {
    border-top: none;
  }

  .fg-Table tbody th,
  .fg-Table tbody td {
    padding: 1px 0;
    overflow-wrap: anywhere;
    white-space: normal;
  }

  .fg-Table tbody th {
    color: var(--fg-ink);
    font-weight: 600;
  }

  .fg-Table tbody td {
    display: flex;
    justify-content: space-between;
    gap: 12px;
    min-width: 0;
  }

  .fg-Table tbody td:empty {
    display: none;
  }

  .fg-Table tbody td::before {
    flex: none;
    color: var(--fg-soft);
    content: attr(data-head);
  }

  .fg-Table.fg-mod-matrix tbody td::before {
    color: inherit;
  }
}

.fg-Spoken {
  position: absolute;
  width: 1px;
  height: 1px;
  overflow: hidden;
  clip-path: inset(50%);
  white-space: nowrap;
}
`,""]),r.d(a,{},{A:n})},314(e){e.exports=function(e){var a=[];return a.toString=function(){return this.map(function(a){var r="",t=void 0!==a[5];return a[4]&&(r+="@supports (".concat(a[4],") {")),a[2]&&(r+="@media ".concat(a[2]," {")),t&&(r+="@layer".concat(a[5].length>0?" ".concat(a[5]):""," {")),r+=e(a),t&&(r+="}"),a[2]&&(r+="}"),a[4]&&(r+="}"),r}).join("")},a.i=function(e,r,t,o,i){"string"==typeof e&&(e=[[null,e,void 0]]);var n={};if(t)for(var f=0;f<this.length;f++){var l=this[f][0];null!=l&&(n[l]=!0)}for(var d=0;d<e.length;d++){var g=[].concat(e[d]);t&&n[g[0]]||(void 0!==i&&(void 0===g[5]||(g[1]="@layer".concat(g[5].length>0?" ".concat(g[5]):""," {").concat(g[1],"}")),g[5]=i),r&&(g[2]&&(g[1]="@media ".concat(g[2]," {").concat(g[1],"}")),g[2]=r),o&&(g[4]?(g[1]="@supports (".concat(g[4],") {").concat(g[1],"}"),g[4]=o):g[4]="".concat(o)),a.push(g))}},a}},601(e){e.exports=function(e){return e[1]}},72(e){var a=[];function r(e){for(var r=-1,t=0;t<a.length;t++)if(a[t].identifier===e){r=t;break}return r}function t(e,t){for(var o={},i=[],n=0;n<e.length;n++){var f=e[n],l=t.base?f[0]+t.base:f[0],d=o[l]||0,g="".concat(l," ").concat(d);o[l]=d+1;var s=r(g),p={css:f[1],media:f[2],sourceMap:f[3],supports:f[4],layer:f[5]};if(-1!==s)a[s].references++,a[s].updater(p);else{var c=function(e,a){var r=a.domAPI(a);return r.update(e),function(a){a?(a.css!==e.css||a.media!==e.media||a.sourceMap!==e.sourceMap||a.supports!==e.supports||a.layer!==e.layer)&&r.update(e=a):r.remove()}}(p,t);t.byIndex=n,a.splice(n,0,{identifier:g,updater:c,references:1})}i.push(g)}return i}e.exports=function(e,o){var i=t(e=e||[],o=o||{});return function(e){e=e||[];for(var n=0;n<i.length;n++){var f=r(i[n]);a[f].references--}for(var l=t(e,o),d=0;d<i.length;d++){var g=r(i[d]);0===a[g].references&&(a[g].updater(),a.splice(g,1))}i=l}}},659(e){var a={};e.exports=function(e,r){var t=function(e){if(void 0===a[e]){var r=document.querySelector(e);if(window.HTMLIFrameElement&&r instanceof window.HTMLIFrameElement)try{r=r.contentDocument.head}catch(e){r=null}a[e]=r}return a[e]}(e);if(!t)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");t.appendChild(r)}},540(e){e.exports=function(e){var a=document.createElement("style");return e.setAttributes(a,e.attributes),e.insert(a,e.options),a}},56(e,a,r){e.exports=function(e){var a=r.nc;a&&e.setAttribute("nonce",a)}},825(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var a=e.insertStyleElement(e);return{update:function(r){var t,o,i;t="",r.supports&&(t+="@supports (".concat(r.supports,") {")),r.media&&(t+="@media ".concat(r.media," {")),(o=void 0!==r.layer)&&(t+="@layer".concat(r.layer.length>0?" ".concat(r.layer):""," {")),t+=r.css,o&&(t+="}"),r.media&&(t+="}"),r.supports&&(t+="}"),(i=r.sourceMap)&&"u">typeof btoa&&(t+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(i))))," */")),e.styleTagTransform(t,a,e.options)},remove:function(){var e;null===(e=a).parentNode||e.parentNode.removeChild(e)}}}},113(e){e.exports=function(e,a){if(a.styleSheet)a.styleSheet.cssText=e;else{for(;a.firstChild;)a.removeChild(a.firstChild);a.appendChild(document.createTextNode(e))}}},147(e,a,r){var t=r(72),o=r.n(t),i=r(825),n=r.n(i),f=r(659),l=r.n(f),d=r(56),g=r.n(d),s=r(540),p=r.n(s),c=r(113),u=r.n(c),h=r(757),b={};b.styleTagTransform=u(),b.setAttributes=g(),b.insert=l().bind(null,"head"),b.domAPI=n(),b.insertStyleElement=p(),o()(h.A,b),h.A&&h.A.locals&&h.A.locals;var m=r(40),x={};x.styleTagTransform=u(),x.setAttributes=g(),x.insert=l().bind(null,"head"),x.domAPI=n(),x.insertStyleElement=p(),o()(m.A,x),m.A&&m.A.locals&&m.A.locals;var v=r(475),w={};w.styleTagTransform=u(),w.setAttributes=g(),w.insert=l().bind(null,"head"),w.domAPI=n(),w.insertStyleElement=p(),o()(v.A,w),v.A&&v.A.locals&&v.A.locals;var y=r(814),k={};k.styleTagTransform=u(),k.setAttributes=g(),k.insert=l().bind(null,"head"),k.domAPI=n(),k.insertStyleElement=p(),o()(y.A,k),y.A&&y.A.locals&&y.A.locals;var j=r(21),S={};S.styleTagTransform=u(),S.setAttributes=g(),S.insert=l().bind(null,"head"),S.domAPI=n(),S.insertStyleElement=p(),o()(j.A,S),j.A&&j.A.locals&&j.A.locals;var T=r(164),A={};A.styleTagTransform=u(),A.setAttributes=g(),A.insert=l().bind(null,"head"),A.domAPI=n(),A.insertStyleElement=p(),o()(T.A,A),T.A&&T.A.locals&&T.A.locals}}]);