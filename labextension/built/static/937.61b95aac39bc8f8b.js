"use strict";(self.rspackChunkfakegpu_lab=self.rspackChunkfakegpu_lab||[]).push([[937],{757(e,o,r){var a=r(601),t=r.n(a),i=r(314),n=(r.n(i))()(t());n.push([e.id,'.uplot, .uplot *, .uplot *::before, .uplot *::after {box-sizing: border-box;}.uplot {font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, "Noto Sans", sans-serif, "Apple Color Emoji", "Segoe UI Emoji", "Segoe UI Symbol", "Noto Color Emoji";line-height: 1.5;width: min-content;}.u-title {text-align: center;font-size: 18px;font-weight: bold;}.u-wrap {position: relative;user-select: none;}.u-over, .u-under {position: absolute;}.u-under {overflow: hidden;}.uplot canvas {display: block;position: relative;width: 100%;height: 100%;}.u-axis {position: absolute;}.u-legend {font-size: 14px;margin: auto;text-align: center;}.u-inline {display: block;}.u-inline * {display: inline-block;}.u-inline tr {margin-right: 16px;}.u-legend th {font-weight: 600;}.u-legend th > * {vertical-align: middle;display: inline-block;}.u-legend .u-marker {width: 1em;height: 1em;margin-right: 4px;background-clip: padding-box !important;}.u-inline.u-live th::after {content: ":";vertical-align: middle;}.u-inline:not(.u-live) .u-value {display: none;}.u-series > * {padding: 4px;}.u-series th {cursor: pointer;}.u-legend .u-off > * {opacity: 0.3;}.u-select {background: rgba(0,0,0,0.07);position: absolute;pointer-events: none;}.u-cursor-x, .u-cursor-y {position: absolute;left: 0;top: 0;pointer-events: none;will-change: transform;}.u-hz .u-cursor-x, .u-vt .u-cursor-y {height: 100%;border-right: 1px dashed #607D8B;}.u-hz .u-cursor-y, .u-vt .u-cursor-x {width: 100%;border-bottom: 1px dashed #607D8B;}.u-cursor-pt {position: absolute;top: 0;left: 0;border-radius: 50%;border: 0 solid;pointer-events: none;will-change: transform;/*this has to be !important since we set inline "background" shorthand */background-clip: padding-box !important;}.u-axis.u-off, .u-select.u-off, .u-cursor-x.u-off, .u-cursor-y.u-off, .u-cursor-pt.u-off {display: none;}',""]),r.d(o,{},{A:n})},475(e,o,r){var a=r(601),t=r.n(a),i=r(314),n=(r.n(i))()(t());n.push([e.id,`.fg-Gpus,
.fg-Dashboard,
.fg-Lessons,
.fg-Status,
.fg-Hardware {
  --fg-memory: #0072b2;
  --fg-utilisation: #d55e00;
  --fg-full: #b3261e;
}

[data-jp-theme-light='false'] .fg-Gpus,
[data-jp-theme-light='false'] .fg-Dashboard,
[data-jp-theme-light='false'] .fg-Lessons,
[data-jp-theme-light='false'] .fg-Status,
[data-jp-theme-light='false'] .fg-Hardware {
  --fg-memory: #56b4e9;
  --fg-utilisation: #e69f00;
  --fg-full: #ff8a80;
}

.fg-Gpus {
  box-sizing: border-box;
  min-width: 220px;
  padding: 8px 12px 16px;
  overflow: hidden auto;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size1);
}

.fg-Gpus [hidden] {
  display: none;
}

.fg-Head-line {
  display: flex;
  align-items: baseline;
  gap: 8px;
}

.fg-Title {
  flex: 1;
  min-width: 0;
  margin: 4px 0 0;
  overflow: hidden;
  font-size: var(--jp-ui-font-size2);
  font-weight: 600;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.fg-Busy {
  color: var(--jp-ui-font-color2);
  font-style: italic;
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

.fg-Error {
  margin: 8px 0;
  padding: 6px 8px;
  border-left: 3px solid var(--fg-full);
  background: var(--jp-layout-color2);
  overflow-wrap: anywhere;
}

.fg-Error:not(:hover) {
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
  border: 1px solid var(--jp-border-color2);
  border-radius: 4px;
  background: var(--jp-layout-color1);
  contain-intrinsic-size: auto 190px;
  content-visibility: auto;
  cursor: pointer;
}

.fg-Card:hover {
  border-color: var(--jp-brand-color1);
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
  white-space: pre;
}

.fg-Card-name:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: 2px;
}

.fg-Card-state {
  color: var(--fg-full);
  font-size: var(--jp-ui-font-size0);
  font-weight: 600;
  white-space: nowrap;
}

.fg-Meter {
  position: relative;
  height: 6px;
  margin: 6px 0;
  overflow: hidden;
  border-radius: 3px;
  background: var(--jp-layout-color3);
}

.fg-Meter-allocated,
.fg-Meter-reserved {
  position: absolute;
  inset: 0 auto 0 0;
  width: 0;
  background: var(--fg-memory);
}

.fg-Meter-reserved {
  opacity: 0.4;
}

.fg-mod-full .fg-Meter-allocated {
  background: var(--fg-full);
}

.fg-Card-line {
  display: flex;
  justify-content: space-between;
  gap: 8px;
  font-variant-numeric: tabular-nums;
}

.fg-Card-memory {
  border-bottom: 2px solid var(--fg-memory);
}

.fg-Card-used {
  border-bottom: 2px solid var(--fg-utilisation);
}

.fg-Sparkline {
  display: block;
  width: 100%;
  height: 36px;
  margin: 6px 0;
  border-bottom: 1px solid var(--jp-border-color2);
}

.fg-Facts {
  display: grid;
  grid-template-columns: auto 1fr;
  gap: 1px 12px;
  margin: 0;
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
}

.fg-Facts dd {
  margin: 0;
  color: var(--jp-ui-font-color1);
  font-variant-numeric: tabular-nums;
  text-align: right;
}

.fg-Heading {
  margin: 16px 0 4px;
  font-size: var(--jp-ui-font-size1);
  font-weight: 600;
}

.fg-List {
  margin: 0;
  padding-left: 16px;
  line-height: 1.4;
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
`,""]),r.d(o,{},{A:n})},814(e,o,r){var a=r(601),t=r.n(a),i=r(314),n=(r.n(i))()(t());n.push([e.id,`/* Okabe and Ito's colours, which people of every kind of colour vision tell apart (jfly.uni-koeln.de/color, 2008). */
.fg-Dashboard {
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
  --fg-kind-normalisation: #cc79a7;
  --fg-kind-optimizer: #b8a800;
  --fg-kind-launch: #8a8f98;
  --fg-kind-host-waits: #c9cdd3;
  --fg-kind-host-works: #5b6270;
  --fg-kind-forward: #c9d0d9;
  --fg-kind-backward: #9aa6b8;
  --fg-kind-copy: #222;
  --fg-kind-collective: #6a3d9a;
  --fg-kind-waits-for-ranks: #d8cbe6;
  --fg-kind-other: #999;

  box-sizing: border-box;
  min-width: 320px;
  padding: 12px 16px 24px;
  overflow: hidden auto;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  container-type: inline-size;
  font-size: var(--jp-ui-font-size1);
}

[data-jp-theme-light='false'] .fg-Dashboard {
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
  --fg-kind-optimizer: #f0e442;
  --fg-kind-host-waits: #555b66;
  --fg-kind-host-works: #b4bac6;
  --fg-kind-forward: #3a4250;
  --fg-kind-backward: #525c6e;
  --fg-kind-copy: #f2f2f2;
  --fg-kind-collective: #b497d6;
  --fg-kind-waits-for-ranks: #4b3c5c;
}

.fg-Dashboard [hidden] {
  display: none;
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

.fg-Small,
.fg-Select {
  padding: 2px 10px;
  border: 1px solid var(--jp-border-color1);
  border-radius: 4px;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  cursor: pointer;
  font: inherit;
}

.fg-Small:hover,
.fg-Select:hover {
  background: var(--jp-layout-color2);
}

.fg-Small[aria-pressed='true'] {
  border-color: var(--jp-brand-color1);
  background: var(--jp-brand-color1);
  color: var(--jp-ui-inverse-font-color1);
}

.fg-Small:focus-visible,
.fg-Select:focus-visible,
.fg-Chart-host:focus-visible,
.fg-Lanes:focus-visible,
.fg-Table-scroll:focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: 1px;
}

.fg-Parts {
  display: grid;
  grid-template-columns: minmax(0, 1fr);
  gap: 12px;
}

.fg-Part {
  contain-intrinsic-size: auto 240px;
  content-visibility: auto;
  min-width: 0;
  padding: 8px 12px 10px;
  border: 1px solid var(--jp-border-color2);
  border-radius: 4px;
}

@container (inline-size >= 900px) {
  .fg-Parts {
    grid-template-columns: repeat(2, minmax(0, 1fr));
  }

  .fg-Part[data-part='memory'],
  .fg-Part[data-part='busy'],
  .fg-Part[data-part='timeline'] {
    grid-column: 1 / -1;
  }
}

.fg-Section-head {
  display: flex;
  align-items: baseline;
  gap: 10px;
  margin-bottom: 6px;
}

.fg-Section-title {
  margin: 0;
  font-size: var(--jp-ui-font-size1);
  font-weight: 600;
}

.fg-Section-note {
  flex: 1;
  min-width: 0;
  overflow: hidden;
  color: var(--jp-ui-font-color2);
  font-variant-numeric: tabular-nums;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.fg-Section-head .fg-Small {
  padding: 0 6px;
  font-size: var(--jp-ui-font-size0);
}

.fg-Section-why {
  margin: 4px 0;
  color: var(--jp-ui-font-color2);
}

.fg-Chart .u-select {
  background: var(--jp-brand-color1);
  opacity: 0.2;
}

.fg-Chart .u-cursor-x {
  border-right: 1px solid var(--jp-ui-font-color1);
}

.fg-Legend {
  display: flex;
  flex-flow: row wrap;
  gap: 2px 16px;
  margin: 4px 0 0;
  padding: 0;
  font-variant-numeric: tabular-nums;
  list-style: none;
}

.fg-Legend li {
  white-space: nowrap;
}

.fg-Legend-name {
  color: var(--jp-ui-font-color2);
}

.fg-Swatch {
  display: inline-block;
  width: 10px;
  height: 10px;
  margin-right: 5px;
  border-radius: 2px;
}

.fg-Lanes-frame {
  position: relative;
}

.fg-Lanes-scroll {
  max-height: 420px;
  overflow: hidden auto;
}

.fg-Lanes {
  display: block;
  width: 100%;
  cursor: crosshair;
  touch-action: pan-y;
}

.fg-Tip {
  position: absolute;
  z-index: 10;
  max-width: 60ch;
  padding: 3px 8px;
  overflow: hidden;
  border: 1px solid var(--jp-border-color1);
  border-radius: 3px;
  background: var(--jp-layout-color2);
  pointer-events: none;
  text-overflow: ellipsis;
  white-space: nowrap;
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

.fg-Table th {
  font-weight: 400;
  color: var(--jp-ui-font-color2);
}

.fg-Table tr > :first-child {
  padding-left: 0;
  text-align: left;
}

.fg-Table tbody tr > * {
  border-top: 1px solid var(--jp-border-color3);
}

.fg-mod-matrix td {
  background: color-mix(in srgb, var(--fg-memory) calc(var(--fg-shade, 0) * 100%), transparent);
}

.fg-mod-ranks td:last-child {
  min-width: 160px;
  background: linear-gradient(var(--fg-kind-waits-for-ranks) 0 0) no-repeat left /
    calc(var(--fg-shade, 0) * 100%) 100%;
}

.fg-Spoken {
  position: absolute;
  width: 1px;
  height: 1px;
  overflow: hidden;
  clip-path: inset(50%);
  white-space: nowrap;
}
`,""]),r.d(o,{},{A:n})},21(e,o,r){var a=r(601),t=r.n(a),i=r(314),n=(r.n(i))()(t());n.push([e.id,`.fg-Lessons {
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
`,""]),r.d(o,{},{A:n})},314(e){e.exports=function(e){var o=[];return o.toString=function(){return this.map(function(o){var r="",a=void 0!==o[5];return o[4]&&(r+="@supports (".concat(o[4],") {")),o[2]&&(r+="@media ".concat(o[2]," {")),a&&(r+="@layer".concat(o[5].length>0?" ".concat(o[5]):""," {")),r+=e(o),a&&(r+="}"),o[2]&&(r+="}"),o[4]&&(r+="}"),r}).join("")},o.i=function(e,r,a,t,i){"string"==typeof e&&(e=[[null,e,void 0]]);var n={};if(a)for(var l=0;l<this.length;l++){var s=this[l][0];null!=s&&(n[s]=!0)}for(var d=0;d<e.length;d++){var f=[].concat(e[d]);a&&n[f[0]]||(void 0!==i&&(void 0===f[5]||(f[1]="@layer".concat(f[5].length>0?" ".concat(f[5]):""," {").concat(f[1],"}")),f[5]=i),r&&(f[2]&&(f[1]="@media ".concat(f[2]," {").concat(f[1],"}")),f[2]=r),t&&(f[4]?(f[1]="@supports (".concat(f[4],") {").concat(f[1],"}"),f[4]=t):f[4]="".concat(t)),o.push(f))}},o}},601(e){e.exports=function(e){return e[1]}},72(e){var o=[];function r(e){for(var r=-1,a=0;a<o.length;a++)if(o[a].identifier===e){r=a;break}return r}function a(e,a){for(var t={},i=[],n=0;n<e.length;n++){var l=e[n],s=a.base?l[0]+a.base:l[0],d=t[s]||0,f="".concat(s," ").concat(d);t[s]=d+1;var p=r(f),g={css:l[1],media:l[2],sourceMap:l[3],supports:l[4],layer:l[5]};if(-1!==p)o[p].references++,o[p].updater(g);else{var c=function(e,o){var r=o.domAPI(o);return r.update(e),function(o){o?(o.css!==e.css||o.media!==e.media||o.sourceMap!==e.sourceMap||o.supports!==e.supports||o.layer!==e.layer)&&r.update(e=o):r.remove()}}(g,a);a.byIndex=n,o.splice(n,0,{identifier:f,updater:c,references:1})}i.push(f)}return i}e.exports=function(e,t){var i=a(e=e||[],t=t||{});return function(e){e=e||[];for(var n=0;n<i.length;n++){var l=r(i[n]);o[l].references--}for(var s=a(e,t),d=0;d<i.length;d++){var f=r(i[d]);0===o[f].references&&(o[f].updater(),o.splice(f,1))}i=s}}},659(e){var o={};e.exports=function(e,r){var a=function(e){if(void 0===o[e]){var r=document.querySelector(e);if(window.HTMLIFrameElement&&r instanceof window.HTMLIFrameElement)try{r=r.contentDocument.head}catch(e){r=null}o[e]=r}return o[e]}(e);if(!a)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");a.appendChild(r)}},540(e){e.exports=function(e){var o=document.createElement("style");return e.setAttributes(o,e.attributes),e.insert(o,e.options),o}},56(e,o,r){e.exports=function(e){var o=r.nc;o&&e.setAttribute("nonce",o)}},206(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var o=e.insertStyleElement(e);return{update:function(r){var a,t,i;a="",r.supports&&(a+="@supports (".concat(r.supports,") {")),r.media&&(a+="@media ".concat(r.media," {")),(t=void 0!==r.layer)&&(a+="@layer".concat(r.layer.length>0?" ".concat(r.layer):""," {")),a+=r.css,t&&(a+="}"),r.media&&(a+="}"),r.supports&&(a+="}"),(i=r.sourceMap)&&"u">typeof btoa&&(a+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(i))))," */")),e.styleTagTransform(a,o,e.options)},remove:function(){var e;null===(e=o).parentNode||e.parentNode.removeChild(e)}}}},113(e){e.exports=function(e,o){if(o.styleSheet)o.styleSheet.cssText=e;else{for(;o.firstChild;)o.removeChild(o.firstChild);o.appendChild(document.createTextNode(e))}}},688(e,o,r){var a=r(72),t=r.n(a),i=r(206),n=r.n(i),l=r(659),s=r.n(l),d=r(56),f=r.n(d),p=r(540),g=r.n(p),c=r(113),u=r.n(c),b=r(757),m={};m.styleTagTransform=u(),m.setAttributes=f(),m.insert=s().bind(null,"head"),m.domAPI=n(),m.insertStyleElement=g(),t()(b.A,m),b.A&&b.A.locals&&b.A.locals;var h=r(475),x={};x.styleTagTransform=u(),x.setAttributes=f(),x.insert=s().bind(null,"head"),x.domAPI=n(),x.insertStyleElement=g(),t()(h.A,x),h.A&&h.A.locals&&h.A.locals;var v=r(814),y={};y.styleTagTransform=u(),y.setAttributes=f(),y.insert=s().bind(null,"head"),y.domAPI=n(),y.insertStyleElement=g(),t()(v.A,y),v.A&&v.A.locals&&v.A.locals;var w=r(21),k={};k.styleTagTransform=u(),k.setAttributes=f(),k.insert=s().bind(null,"head"),k.domAPI=n(),k.insertStyleElement=g(),t()(w.A,k),w.A&&w.A.locals&&w.A.locals}}]);