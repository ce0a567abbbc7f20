import { LabIcon } from '@jupyterlab/ui-components';

/** A chip with its pins. */
export const gpuIcon = new LabIcon({
  name: 'fakegpu-lab:gpu',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <path d="M2 4h2v16H2z"/>
    <path fill-rule="evenodd" d="M5 6h17v11H5V6zm6 2.5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zm7.5 0H16v6h2.5v-6z"/>
    <path d="M7 18h6v2.5H7z"/>
  </g>
</svg>`
});

/** A mortarboard. */
export const lessonIcon = new LabIcon({
  name: 'fakegpu-lab:lesson',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <path d="M12 3 1 9l11 6 9-4.9V17h2V9z"/>
    <path d="M5 13.2v4L12 21l7-3.8v-4L12 17z"/>
  </g>
</svg>`
});

/** A tick in a box. */
export const checkIcon = new LabIcon({
  name: 'fakegpu-lab:check',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="16">
  <path class="jp-icon3 jp-icon-selectable" fill="#616161" d="M3 3h18v18H3zm2 2v14h14V5zm5.6 11.4L6.6 12.4 8 11l2.6 2.6L16 8.2l1.4 1.4z"/>
</svg>`
});
